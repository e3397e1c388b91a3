//! Runs the program as a person does.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// What lets several development servers run at once.
pub(crate) const FREE_PORTS: [&str; 6] = ["--port", "0", "--http-port", "0", "--proxy-port", "0"];

/// How long a process may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program, with a clean environment: no variable of the caller's shell decides a test.
pub(crate) fn undolog(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undolog"));
    for (name, _) in std::env::vars() {
        let is_ours = name.starts_with("UNDOLOG_") && name != "UNDOLOG_PG_BIN";
        if is_ours || name == "DATABASE_URL" {
            command.env_remove(name);
        }
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// What a command said and how it ended.
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.stdout, self.stderr);
        self
    }
}

/// Runs a command to its end.
pub(crate) fn run(args: &[&str]) -> Said {
    let output = undolog(args).output().expect("run the program");
    Said {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A folder that Postgres' user may reach; it goes with this value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("undolog-{name}-{}", std::process::id()));
        let _an_old_one = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _it_is_only_a_folder = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of ours that runs until it is stopped.
pub(crate) struct Server {
    child: Child,
    /// The first line of its output.
    pub(crate) greeting: Value,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts it and waits for its greeting.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut child = undolog(args).stdout(Stdio::piped()).spawn().expect("start the program");
        let mut stdout = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("its greeting");
        let greeting = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{error}: {line:?}, {:?}", child.try_wait()));
        Self { child, greeting, _stdout: stdout }
    }

    /// Starts a development server with its data in this folder, on free ports.
    pub(crate) fn dev(folder: &Folder) -> Self {
        let data = folder.path().join("data");
        let data = data.to_str().expect("a path of ours");
        Self::start(&[&["dev", "--json", "--data-dir", data], &FREE_PORTS[..]].concat())
    }

    /// Ctrl-C; it ends by itself.
    pub(crate) fn interrupt(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().expect("run kill");
        assert!(sent.success());
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("ask for the server") {
                return status;
            }
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _it_may_have_ended = self.child.kill();
            let _its_status_does_not_matter = self.child.wait();
        }
    }
}
