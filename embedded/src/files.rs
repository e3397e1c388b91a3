//! The data folder: what lies in it and who holds it.
//!
//! ```text
//! <data_dir>/lock        held (flock) by the process that runs the server
//! <data_dir>/pgdata      the cluster itself, owned by the server's user, mode 0700
//! <data_dir>/password    the superuser's password, mode 0600; absent with trust authentication
//! <data_dir>/port        the port of the last run, tried again first
//! <data_dir>/server.log  what the server said
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::EmbeddedError;

/// Beyond this size a log is cut when the server starts.
const LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How much of the log an error quotes.
const LOG_TAIL_BYTES: u64 = 4 * 1024;

/// The data folder used when none is named. As root it must not lie in root's home, which the
/// server's user may not pass.
pub fn default_data_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/undolog/dev");
    }
    let home = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    home("XDG_DATA_HOME")
        .or_else(|| home("HOME").map(|dir| dir.join(".local/share")))
        .unwrap_or_else(std::env::temp_dir)
        .join("undolog/dev")
}

/// The paths inside one data folder.
#[derive(Clone, Debug)]
pub(crate) struct DataDir {
    root: PathBuf,
}

impl DataDir {
    /// Creates the folder if need be. Its own mode lets the server's user pass.
    pub(crate) fn create(root: &Path) -> Result<Self, EmbeddedError> {
        std::fs::create_dir_all(root).map_err(EmbeddedError::io("cannot create", root))?;
        let root = root.canonicalize().map_err(EmbeddedError::io("cannot resolve", root))?;
        Ok(Self { root })
    }

    /// An existing folder, unchecked.
    pub(crate) fn existing(root: &Path) -> Option<Self> {
        root.canonicalize().ok().map(|root| Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn pgdata(&self) -> PathBuf {
        self.root.join("pgdata")
    }

    /// Where initdb works; renamed to `pgdata` when it is whole.
    pub(crate) fn pgdata_new(&self) -> PathBuf {
        self.root.join("pgdata.new")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("server.log")
    }

    fn password_file(&self) -> PathBuf {
        self.root.join("password")
    }

    /// The major version that made the cluster, if there is one.
    pub(crate) fn made_by(&self) -> Result<Option<String>, EmbeddedError> {
        let path = self.pgdata().join("PG_VERSION");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EmbeddedError::io("cannot read", &path)(error)),
        }
    }

    /// Takes the folder for this process until the returned file is dropped.
    pub(crate) fn lock(&self) -> Result<File, EmbeddedError> {
        let path = self.root.join("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(EmbeddedError::io("cannot open", &path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)
                    .map_err(EmbeddedError::io("cannot read", &path))?;
                return Err(EmbeddedError::InUse {
                    data_dir: self.root.clone(),
                    holder: format!("pid {}", holder.trim()),
                });
            }
            Err(errno) => return Err(EmbeddedError::io("cannot lock", &path)(errno.into())),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(EmbeddedError::io("cannot write", &path))?;
        Ok(file)
    }

    /// The superuser's password, if the cluster was made with one.
    pub(crate) fn password(&self) -> Result<Option<String>, EmbeddedError> {
        let path = self.password_file();
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(EmbeddedError::io("cannot read", &path)(error)),
        }
    }

    /// Keeps a password, or forgets one of an earlier cluster.
    pub(crate) fn keep_password(&self, password: Option<&str>) -> Result<(), EmbeddedError> {
        let path = self.password_file();
        match password {
            Some(password) => write_private(&path, password),
            None => remove_if_there(&path),
        }
    }

    /// The port of the last run.
    pub(crate) fn last_port(&self) -> Option<u16> {
        std::fs::read_to_string(self.root.join("port")).ok()?.trim().parse().ok()
    }

    /// Remembers the port for the next run.
    pub(crate) fn keep_port(&self, port: u16) -> Result<(), EmbeddedError> {
        let path = self.root.join("port");
        std::fs::write(&path, port.to_string()).map_err(EmbeddedError::io("cannot write", &path))
    }

    /// Opens the log for the server to append to, cut first if it has grown too large; the second
    /// value is where this run's messages begin.
    pub(crate) fn open_log(&self) -> Result<(File, u64), EmbeddedError> {
        let path = self.log();
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(EmbeddedError::io("cannot open", &path))?;
        let length = file.metadata().map_err(EmbeddedError::io("cannot look at", &path))?.len();
        if length > LOG_BYTES_MAX {
            file.set_len(0).map_err(EmbeddedError::io("cannot cut", &path))?;
            return Ok((file, 0));
        }
        Ok((file, length))
    }

    /// The end of the log from `start` on, for an error text. A log that cannot be read says so.
    pub(crate) fn log_tail(&self, start: u64) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES).max(start)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), EmbeddedError> {
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        writeln!(file, "{text}")
    };
    write().map_err(EmbeddedError::io("cannot write", path))
}

/// Removes a file; that it is not there is fine.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), EmbeddedError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(EmbeddedError::io("cannot remove", path)(error))
        }
        _ => Ok(()),
    }
}
