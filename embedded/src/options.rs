//! What a caller may choose about a private server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Cluster, EmbeddedError};

/// How clients prove who they are. It is fixed when the cluster is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// A random password (SCRAM), kept in the data folder with mode 0600.
    Password,
    /// None: every local user is superuser. For tests, which connect often.
    Trust,
}

/// A private server to be started.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    pub(crate) data_dir: PathBuf,
    pub(crate) port: Option<u16>,
    pub(crate) bin_dir: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) auth: Auth,
    pub(crate) fsync: bool,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) start_timeout: Duration,
    #[cfg(feature = "download")]
    pub(crate) download: Option<crate::Download>,
}

impl ClusterOptions {
    /// A durable server with a password, on a free port.
    pub fn new(data_dir: impl AsRef<Path>) -> Self {
        Self {
            data_dir: data_dir.as_ref().to_owned(),
            port: None,
            bin_dir: None,
            user: None,
            auth: Auth::Password,
            fsync: true,
            settings: Vec::new(),
            environment: Vec::new(),
            // A server that was killed under load replays its log first.
            start_timeout: Duration::from_secs(120),
            #[cfg(feature = "download")]
            download: None,
        }
    }

    /// Listens on this port, or fails. Without it: the last run's port if it is free, else any.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Takes the server's binaries from this folder and looks nowhere else.
    #[must_use]
    pub fn bin_dir(mut self, bin_dir: impl AsRef<Path>) -> Self {
        self.bin_dir = Some(bin_dir.as_ref().to_owned());
        self
    }

    /// Runs the server as this user. Only root can choose.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Chooses the authentication of a cluster that is yet to be made.
    #[must_use]
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Without fsync a power cut loses the cluster; a killed server does not. For tests. The server
    /// says so in its setting `undolog.data_may_be_lost`, without which nothing of ours serves on
    /// it.
    #[must_use]
    pub fn fsync(mut self, fsync: bool) -> Self {
        self.fsync = fsync;
        self
    }

    /// Sets a parameter of the server, stronger than its configuration file.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Sets a variable in the server's otherwise clean environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// How long the server may take until it accepts connections.
    #[must_use]
    pub fn start_timeout(mut self, limit: Duration) -> Self {
        self.start_timeout = limit;
        self
    }

    /// Fetches a server when the machine has none.
    #[cfg(feature = "download")]
    #[must_use]
    pub fn download(mut self, download: crate::Download) -> Self {
        self.download = Some(download);
        self
    }

    /// Makes the cluster if it is not there yet, and starts its server.
    ///
    /// A server that an earlier, killed process left behind on this folder is stopped first. A
    /// folder that a living process holds is refused.
    pub fn start(self) -> Result<Cluster, EmbeddedError> {
        Cluster::start(self)
    }
}
