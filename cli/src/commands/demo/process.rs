//! One of the demonstration's processes: this same program with another verb.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::error::CliError;

/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(10);

/// How much of a log is shown when something went wrong.
const LOG_LINES: usize = 20;

/// A process with a log. It dies with its owner.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    args: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `undolog <args>`; what it writes goes to `<folder>/<name>.log`.
    pub(super) fn start(
        name: &'static str,
        folder: &Path,
        args: Vec<OsString>,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Self, CliError> {
        let log = folder.join(format!("{name}.log"));
        let child = spawn(name, &args, &environment, &log)?;
        Ok(Self { name, args, environment, log, child })
    }

    /// The first line of its output.
    pub(super) async fn first_line(&mut self) -> Result<String, CliError> {
        let failed = |why: String| CliError::Failed(format!("{} did not start: {why}", self.name));
        let Some(stdout) = self.child.stdout.as_mut() else {
            return Err(failed("it has no output".to_owned()));
        };
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        match tokio::time::timeout(GRACE, reader.read_line(&mut line)).await {
            Ok(Ok(0)) => Err(failed("it ended at once".to_owned())),
            Ok(Ok(_)) => Ok(line.trim().to_owned()),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("it said nothing".to_owned())),
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL: no warning, no clean-up.
    pub(super) async fn kill(&mut self) -> Result<(), CliError> {
        let failed = |error| CliError::Failed(format!("cannot kill {}: {error}", self.name));
        self.child.kill().await.map_err(failed)
    }

    /// Starts it again with the same arguments.
    pub(super) fn restart(&mut self) -> Result<(), CliError> {
        self.child = spawn(self.name, &self.args, &self.environment, &self.log)?;
        Ok(())
    }

    /// SIGTERM, and SIGKILL if it does not listen.
    pub(super) async fn stop(&mut self) {
        let Some(pid) = self.child.id() else { return };
        let asked = Command::new("kill").args(["-TERM", &pid.to_string()]).status().await;
        let ended = tokio::time::timeout(GRACE, self.child.wait()).await;
        if asked.is_err() || ended.is_err() {
            tracing::warn!(process.name = self.name, "did not stop in time and was killed");
            if let Err(error) = self.child.kill().await {
                tracing::warn!(process.name = self.name, %error, "could not be killed");
            }
        }
    }

    /// The end of its log.
    pub(super) fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        format!("--- {} ({})\n{tail}", self.name, self.log.display())
    }
}

fn spawn(
    name: &str,
    args: &[OsString],
    environment: &[(&'static str, String)],
    log: &Path,
) -> Result<Child, CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("cannot start {name}: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let stderr = OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
    Command::new(program)
        .args(args)
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(stderr)
        // Ctrl-C reaches us alone: we end them, in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)
}
