//! A server that this process started and will stop.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use crate::EmbeddedError;
use crate::files::DataDir;
use crate::find::{Installation, find_installation};
use crate::initdb::{clean_environment, initdb};
use crate::options::ClusterOptions;
use crate::postmaster::{self, POLL, PidFile};
use crate::user::RunAs;

/// A free port can be taken between our look and the server's bind.
const PORT_TRIES: u32 = 5;

/// A running private server. Dropping it stops it.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    dir: DataDir,
    installation: Installation,
    user: RunAs,
    password: Option<String>,
    port: u16,
    server: Option<Child>,
    _lock: File,
}

impl Cluster {
    pub(crate) fn start(options: ClusterOptions) -> Result<Self, EmbeddedError> {
        let user = RunAs::choose(options.user.as_deref())?;
        let dir = DataDir::create(&options.data_dir)?;
        let lock = dir.lock()?;
        user.may_reach(dir.root())?;
        postmaster::stop_orphan(&dir.pgdata())?;
        let installation = installation_for(&dir, &options)?;
        user.may_reach(&installation.bin_dir)?;
        if dir.made_by()?.is_none() {
            initdb(&dir, &installation, &user, options.auth, options.fsync)?;
        }
        let password = dir.password()?;
        let mut cluster =
            Self { options, dir, installation, user, password, port: 0, server: None, _lock: lock };
        cluster.launch()?;
        Ok(cluster)
    }

    /// Starts the server, on another port if the one chosen was taken meanwhile.
    fn launch(&mut self) -> Result<(), EmbeddedError> {
        let mut tries = 0;
        loop {
            tries += 1;
            self.port = match self.options.port {
                Some(port) => port,
                None => free_port(self.dir.last_port())
                    .map_err(EmbeddedError::io("no free port for", self.dir.root()))?,
            };
            match self.launch_once() {
                Err(EmbeddedError::Start { log_tail, .. })
                    if self.options.port.is_none()
                        && tries < PORT_TRIES
                        && log_tail.contains("could not create any TCP/IP sockets") => {}
                Err(error) => return Err(error),
                Ok(()) => return self.dir.keep_port(self.port),
            }
        }
    }

    fn launch_once(&mut self) -> Result<(), EmbeddedError> {
        let (log, log_start) = self.dir.open_log()?;
        let log_too = log.try_clone().map_err(EmbeddedError::io("cannot open", &self.dir.log()))?;
        let program = self.installation.program("postgres");
        let mut command = Command::new(&program);
        clean_environment(&mut command, &self.dir);
        command.envs(self.options.environment.iter().map(|(name, value)| (name, value)));
        command.arg("-D").arg(self.dir.pgdata());
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.user.apply(&mut command);
        let mut server = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            .spawn()
            .map_err(EmbeddedError::io("cannot run", &program))?;
        let ready = self.wait_until_ready(&mut server, log_start);
        // Kept before the outcome is looked at, so that Drop ends a server that is not ready.
        self.server = Some(server);
        ready
    }

    /// Our own parameters first, the caller's after them: the last one of a name wins.
    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", String::new()),
            ("logging_collector", "off".to_owned()),
            ("log_destination", "stderr".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("log_timezone", "UTC".to_owned()),
        ];
        // Commits still wait for their log to be handed to the system: a killed server loses none.
        if !self.options.fsync {
            for name in ["fsync", "full_page_writes"] {
                settings.push((name, "off".to_owned()));
            }
            // Engines and workers refuse such a server unless it says itself that it may lose data.
            settings.push(("undolog.data_may_be_lost", "on".to_owned()));
        }
        let ours = settings.into_iter().map(|(name, value)| (name.to_owned(), value));
        ours.chain(self.options.settings.iter().cloned()).collect()
    }

    /// The server writes `ready` into its pid file when it accepts connections.
    fn wait_until_ready(&self, server: &mut Child, log_start: u64) -> Result<(), EmbeddedError> {
        let failed =
            |why: String| EmbeddedError::Start { why, log_tail: self.dir.log_tail(log_start) };
        let started = Instant::now();
        loop {
            let file = PidFile::read(&self.dir.pgdata());
            if file.is_some_and(|file| file.pid == server.id() && file.ready) {
                return Ok(());
            }
            if let Some(status) = exited(server)? {
                return Err(failed(format!("it ended with {status}")));
            }
            if started.elapsed() > self.options.start_timeout {
                return Err(failed(format!("not ready after {:?}", self.options.start_timeout)));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The connection URL of a database, as superuser, password included.
    pub fn url(&self, database: &str) -> String {
        postmaster::url(self.port, self.password.as_deref(), database)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data folder, resolved.
    pub fn data_dir(&self) -> &Path {
        self.dir.root()
    }

    /// The file that the server's messages go to.
    pub fn log_path(&self) -> PathBuf {
        self.dir.log()
    }

    /// Which Postgres this is.
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// The postmaster's process id, while it is ours and has not been stopped.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Child::id)
    }

    /// Whether the server still runs; `false` also after a crash that nobody asked for.
    pub fn is_running(&mut self) -> bool {
        match &mut self.server {
            Some(server) => matches!(server.try_wait(), Ok(None)),
            None => false,
        }
    }

    /// Stops the server: connections are cut, what is committed is kept.
    pub fn stop(mut self) -> Result<(), EmbeddedError> {
        self.end()
    }

    /// Stops the server and starts it again on the same port.
    pub fn restart(&mut self) -> Result<(), EmbeddedError> {
        self.end()?;
        self.launch()
    }

    /// Ends the server as a crash would (SIGQUIT: no checkpoint), then starts it again, which
    /// replays its log.
    pub fn crash_and_restart(&mut self) -> Result<(), EmbeddedError> {
        if let Some(server) = &mut self.server {
            postmaster::signal(server.id(), Signal::QUIT)?;
            server.wait().map_err(EmbeddedError::io("cannot await", self.dir.root()))?;
            self.server = None;
        }
        self.launch()
    }

    /// Leaves the server running when this process ends; [`crate::running`] finds it again.
    /// Returns the postmaster's process id.
    pub fn detach(mut self) -> Option<u32> {
        self.server.take().map(|server| server.id())
    }

    fn end(&mut self) -> Result<(), EmbeddedError> {
        let Some(mut server) = self.server.take() else {
            return Ok(());
        };
        if exited(&mut server)?.is_some() {
            return Ok(());
        }
        let pid = server.id();
        postmaster::stop(pid, || matches!(server.try_wait(), Ok(Some(_)) | Err(_)))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "postgres.not_stopped");
        }
    }
}

/// The installation for a data folder: the version that made it, or any for a new one.
fn installation_for(
    dir: &DataDir,
    options: &ClusterOptions,
) -> Result<Installation, EmbeddedError> {
    let bin_dir = options.bin_dir.as_deref();
    let Some(made_by) = dir.made_by()? else {
        return find_installation(bin_dir, None).or_else(|error| downloaded(options, error));
    };
    let wrong = |found: String| EmbeddedError::WrongVersion {
        data_dir: dir.root().to_owned(),
        made_by: made_by.clone(),
        found,
    };
    let major = made_by.parse().map_err(|_| wrong("another version".to_owned()))?;
    let found = find_installation(bin_dir, Some(major));
    match found.or_else(|error| downloaded(options, error)) {
        Ok(found) if found.major == major => Ok(found),
        Ok(found) => Err(wrong(found.version)),
        Err(EmbeddedError::NotFound { looked_at }) => Err(wrong(looked_at)),
        Err(other) => Err(other),
    }
}

/// A downloaded server in place of one that was not found, if the caller wants that.
#[cfg(feature = "download")]
fn downloaded(
    options: &ClusterOptions,
    error: EmbeddedError,
) -> Result<Installation, EmbeddedError> {
    match (&options.download, error) {
        (Some(download), EmbeddedError::NotFound { .. }) => download.fetch(),
        (_, other) => Err(other),
    }
}

/// This build cannot download.
#[cfg(not(feature = "download"))]
fn downloaded(_: &ClusterOptions, error: EmbeddedError) -> Result<Installation, EmbeddedError> {
    Err(error)
}

/// The exit status, if the process has ended.
fn exited(server: &mut Child) -> Result<Option<ExitStatus>, EmbeddedError> {
    server.try_wait().map_err(EmbeddedError::io("cannot await", Path::new("postgres")))
}

/// The preferred port if nobody listens on it, else one that the system gives.
fn free_port(preferred: Option<u16>) -> std::io::Result<u16> {
    for port in [preferred.unwrap_or(0), 0] {
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(listener) => return Ok(listener.local_addr()?.port()),
            Err(error) if port == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Err(std::io::ErrorKind::AddrNotAvailable.into())
}

/// Stops whatever server is left on a data folder and removes the folder. One that a living process
/// holds is refused; one that does not exist is fine.
pub fn remove(data_dir: &Path) -> Result<(), EmbeddedError> {
    let Some(dir) = DataDir::existing(data_dir) else { return Ok(()) };
    let _lock = dir.lock()?;
    postmaster::stop_orphan(&dir.pgdata())?;
    std::fs::remove_dir_all(dir.root()).map_err(EmbeddedError::io("cannot remove", dir.root()))
}
