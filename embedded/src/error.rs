//! What can go wrong between "I need a Postgres" and a server that answers.

use std::path::{Path, PathBuf};

/// Why no private Postgres could be had, worded for the person who has to change something.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No usable server was found on this machine.
    #[error(
        "no PostgreSQL {min} or newer was found on this machine ({looked_at}).\n\
         Install one, for example:\n\
         \x20 Debian, Ubuntu:  sudo apt install postgresql\n\
         \x20 Fedora, RHEL:    sudo dnf install postgresql-server\n\
         \x20 macOS:           brew install postgresql@18\n\
         or name the folder of its `postgres` and `initdb` in {variable},\n\
         or use a server that already runs: --database-url / DATABASE_URL",
        min = crate::MAJOR_MIN,
        variable = crate::BIN_DIR_VARIABLE
    )]
    NotFound {
        /// Where it was looked for, and why what was found there did not do.
        looked_at: String,
    },
    /// The folder that the caller named holds no usable server.
    #[error("{} holds no usable PostgreSQL: {why}", bin_dir.display())]
    Unusable {
        /// The folder that was named.
        bin_dir: PathBuf,
        /// What is missing or wrong.
        why: String,
    },
    /// The data folder was made by a version that is not on this machine.
    #[error(
        "{} was made by PostgreSQL {made_by}, and only {found} is on this machine; install \
         PostgreSQL {made_by} or choose another data folder",
        data_dir.display()
    )]
    WrongVersion {
        /// The data folder.
        data_dir: PathBuf,
        /// The major version in its `PG_VERSION`.
        made_by: String,
        /// The versions found.
        found: String,
    },
    /// Another process of ours holds the data folder.
    #[error(
        "{} is in use by another process ({holder}); stop it or choose another data folder",
        data_dir.display()
    )]
    InUse {
        /// The data folder.
        data_dir: PathBuf,
        /// What is known about the holder, for example `pid 4711`.
        holder: String,
    },
    /// Postgres refuses root and the user it would run as cannot be used.
    #[error("PostgreSQL does not run as root, and the user `{name}` cannot be used: {why}")]
    User {
        /// The user's name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// The unprivileged user cannot reach a folder.
    #[error(
        "PostgreSQL runs as the user `{user}`, who may not pass {} on the way to {}; \
         allow it (chmod a+x {}) or choose a folder that everybody may pass",
        blocked_at.display(), target.display(), blocked_at.display()
    )]
    Impassable {
        /// The user that the server runs as.
        user: String,
        /// The folder that stops it.
        blocked_at: PathBuf,
        /// Where it was going.
        target: PathBuf,
    },
    /// `initdb` failed.
    #[error("initdb could not make {}: {output}", data_dir.display())]
    Initdb {
        /// The data folder.
        data_dir: PathBuf,
        /// The end of what initdb said.
        output: String,
    },
    /// The server ended, or was not ready in time.
    #[error("PostgreSQL did not start: {why}\n{log_tail}")]
    Start {
        /// What was seen.
        why: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// The server did not stop in time.
    #[error("PostgreSQL (pid {pid}) did not stop: {why}")]
    Stop {
        /// The postmaster's process id.
        pid: u32,
        /// What was seen.
        why: String,
    },
    /// A server could not be downloaded.
    #[error("PostgreSQL could not be downloaded from {url}: {why}")]
    Download {
        /// What was asked for.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// A file or process operation failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// What was attempted, for example `cannot create`.
        what: &'static str,
        /// On which path.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl EmbeddedError {
    /// Makes a `map_err` argument for an operation on `path`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
