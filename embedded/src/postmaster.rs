//! The running server as its pid file tells it, and how it is ended.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::EmbeddedError;
use crate::files::{DataDir, remove_if_there};

/// How often a state that cannot be waited for is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(5);

/// How long a fast shutdown (SIGINT) may take before an immediate one (SIGQUIT).
const FAST_STOP: Duration = Duration::from_secs(20);

/// How long an immediate shutdown may take before we give up.
const IMMEDIATE_STOP: Duration = Duration::from_secs(10);

/// What `postmaster.pid` says. Its lines: pid, data folder, start time, port, socket folder,
/// listen address, shared memory, status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) ready: bool,
}

impl PidFile {
    /// Reads the pid file; `None` when there is none or it is only half written.
    pub(crate) fn read(pgdata: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(pgdata.join("postmaster.pid")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Some(Self {
            pid: lines.first()?.parse().ok()?,
            port: lines.get(3).and_then(|line| line.parse().ok()).unwrap_or(0),
            ready: lines.get(7) == Some(&"ready"),
        })
    }
}

/// A server that runs on a data folder, whoever started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The postmaster's process id.
    pub pid: u32,
    /// The port on 127.0.0.1.
    pub port: u16,
    /// The superuser's password, if it has one.
    password: Option<String>,
}

impl Running {
    /// The connection URL of a database, as superuser.
    pub fn url(&self, database: &str) -> String {
        url(self.port, self.password.as_deref(), database)
    }
}

/// The server that runs on `data_dir` and accepts connections, if there is one.
pub fn running(data_dir: &Path) -> Result<Option<Running>, EmbeddedError> {
    let Some(dir) = DataDir::existing(data_dir) else {
        return Ok(None);
    };
    match live(&dir.pgdata()) {
        Some(file) if file.ready => {
            Ok(Some(Running { pid: file.pid, port: file.port, password: dir.password()? }))
        }
        _ => Ok(None),
    }
}

/// The connection URL of a database, as superuser. The password is made of hex digits.
pub(crate) fn url(port: u16, password: Option<&str>, database: &str) -> String {
    let user = crate::initdb::SUPERUSER;
    match password {
        Some(password) => format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}"),
        None => format!("postgres://{user}@127.0.0.1:{port}/{database}"),
    }
}

/// The pid file of a postmaster that is alive; a stale file gives `None`.
pub(crate) fn live(pgdata: &Path) -> Option<PidFile> {
    PidFile::read(pgdata).filter(|file| is_postmaster_of(file.pid, pgdata))
}

/// Whether the process is a postmaster of this folder. Process ids are used again: a pid file that
/// a crash left behind may name a stranger.
fn is_postmaster_of(pid: u32, pgdata: &Path) -> bool {
    if Path::new("/proc/self").exists() {
        return match std::fs::read_link(format!("/proc/{pid}/cwd")) {
            Ok(cwd) => cwd == pgdata,
            // Another user's process; signalling it will be refused, which is then the error.
            Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
        };
    }
    let asked =
        std::process::Command::new("ps").args(["-o", "command=", "-p", &pid.to_string()]).output();
    asked.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("postgres"))
}

/// Sends a signal; a process that has gone is fine.
pub(crate) fn signal(pid: u32, signal: Signal) -> Result<(), EmbeddedError> {
    let refused = |why: String| EmbeddedError::Stop { pid, why };
    let Some(target) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Err(refused("this is no process id".to_owned()));
    };
    match rustix::process::kill_process(target, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(refused(errno.to_string())),
    }
}

/// Stops a postmaster: fast shutdown, then immediate shutdown. `gone` tells when it has ended.
pub(crate) fn stop(pid: u32, mut gone: impl FnMut() -> bool) -> Result<(), EmbeddedError> {
    for (how, limit) in [(Signal::INT, FAST_STOP), (Signal::QUIT, IMMEDIATE_STOP)] {
        signal(pid, how)?;
        if wait_until(limit, &mut gone) {
            return Ok(());
        }
        tracing::warn!(pid, signal = ?how, "postgres.still_running");
    }
    Err(EmbeddedError::Stop { pid, why: "it ignored SIGINT and SIGQUIT".to_owned() })
}

/// Stops a server that an earlier process of ours left behind when it was killed.
pub(crate) fn stop_orphan(pgdata: &Path) -> Result<(), EmbeddedError> {
    let Some(orphan) = live(pgdata) else {
        return forget_stranger(pgdata);
    };
    tracing::info!(pid = orphan.pid, "postgres.orphan_stopped");
    stop(orphan.pid, || live(pgdata).is_none())
}

/// Removes a pid file that names a living process which is no postmaster: the server would take it
/// for one and refuse to start. A file that names nobody stays, since the server's own check of
/// left-over shared memory reads it.
fn forget_stranger(pgdata: &Path) -> Result<(), EmbeddedError> {
    let Some(file) = PidFile::read(pgdata) else {
        return Ok(());
    };
    let target = i32::try_from(file.pid).ok().and_then(Pid::from_raw);
    let alive = target
        .is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH));
    if alive {
        tracing::info!(pid = file.pid, "postgres.stale_pid_file_removed");
        remove_if_there(&pgdata.join("postmaster.pid"))?;
    }
    Ok(())
}

/// Polls until the condition holds or the time is up.
pub(crate) fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if started.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        "4711\n/example/pgdata\n1700000000\n54321\n\n127.0.0.1\n  123 4\nready   \n";

    #[test]
    fn a_pid_file_is_read_line_by_line() {
        let expected = PidFile { pid: 4711, port: 54321, ready: true };
        assert_eq!(PidFile::parse(WHOLE), Some(expected));
        let starting = WHOLE.replace("ready", "starting");
        assert!(PidFile::parse(&starting).is_some_and(|file| !file.ready));
        assert!(PidFile::parse("4711\n").is_some_and(|file| !file.ready));
        assert_eq!(PidFile::parse(""), None);
    }

    #[test]
    fn a_stranger_with_the_old_pid_is_no_postmaster() {
        assert!(!is_postmaster_of(std::process::id(), Path::new("/example/pgdata")));
        assert!(!is_postmaster_of(u32::MAX, Path::new("/example/pgdata")));
    }
}
