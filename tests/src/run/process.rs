//! One process under test: started, watched, signalled, and ended with its value.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::log::Log;
use crate::wait::within;

/// How long a process may take until it is ready.
const READY: Duration = Duration::from_secs(60);

/// A process to be started.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Spec {
    /// A program by its path; the name is for logs.
    pub fn new(name: &str, program: impl AsRef<Path>) -> Self {
        Self {
            name: name.to_owned(),
            program: program.as_ref().to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<T: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts it. The program under test dies with the thread that calls this, so that a killed
    /// test leaves nothing behind: call it in the test itself.
    pub fn spawn(self) -> Process {
        let (log, out, err) = Log::create(&self.name);
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("TEST_DIES_WITH_PARENT", "1")
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("start {}: {error}", self.program.display()));
        Process { spec: self, child, log }
    }
}

/// A running process. It is killed when this value goes.
#[derive(Debug)]
pub struct Process {
    spec: Spec,
    child: Child,
    log: Log,
}

impl Process {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it was started as; the same again is `process.spec().clone().spawn()`.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Takes crash points and guard switches out of what [`Process::spec`] starts again.
    pub fn disarm(&mut self) {
        let armed = ["UNDOLOG_CRASH_AT", "UNDOLOG_GUARDS_OFF"];
        self.spec.environment.retain(|(name, _)| !armed.iter().any(|armed| name == armed));
    }

    /// Where its output goes.
    pub fn log_path(&self) -> &Path {
        self.log.path()
    }

    /// All that it has written.
    pub fn output(&self) -> String {
        self.log.text()
    }

    /// Waits until a URL answers 200; panics with the log's end when the process ends before.
    pub async fn wait_ready(&mut self, url: &str) {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_secs(2))
            .no_proxy()
            .build()
            .expect("a client");
        let started = Instant::now();
        loop {
            if let Ok(answer) = client.get(url).send().await
                && answer.status().is_success()
            {
                return;
            }
            if let Some(status) = self.exited() {
                panic!("it ended with {status} before {url} was ready\n{}", self.log.tail());
            }
            assert!(started.elapsed() < READY, "{url} is not ready\n{}", self.log.tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The exit status, if it has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("ask for the child")
    }

    /// Waits until it has ended.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        let child = std::cell::RefCell::new(&mut self.child);
        within(limit, &format!("{} ends", self.spec.name), || async {
            child.borrow_mut().try_wait().expect("ask for the child").ok_or("still running")
        })
        .await
    }

    /// SIGKILL; returns when it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("await the child");
    }

    /// SIGTERM.
    pub fn term(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGINT, as Ctrl-C sends it.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// SIGSTOP: it stands still, as on a machine that has stopped.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("signal {}: {error}", self.spec.name),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.kill9();
        }
    }
}
