//! A private Postgres, from async code.

use std::{path::PathBuf, time::Duration};

use secrecy::SecretString;
use undolog_embedded::{Cluster, ClusterOptions, EmbeddedError};

use crate::error::CliError;

/// The database of a private server that is ours; there is nothing else in it.
const DATABASE: &str = "postgres";

/// Starts a private Postgres in a folder, which keeps its data.
pub async fn start(data_dir: PathBuf, pg_bin: Option<PathBuf>) -> Result<Cluster, EmbeddedError> {
    let started = tokio::task::spawn_blocking(move || {
        let mut options = ClusterOptions::new(data_dir).start_timeout(Duration::from_secs(60));
        if let Some(pg_bin) = pg_bin {
            options = options.bin_dir(pg_bin);
        }
        options.start()
    });
    started.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// Stops it, after everything that used it.
pub async fn stop(cluster: Cluster) -> Result<(), CliError> {
    let stopped = tokio::task::spawn_blocking(move || cluster.stop()).await;
    stopped.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    Ok(())
}

/// The URL of its database.
#[must_use]
pub fn url(cluster: &Cluster) -> SecretString {
    SecretString::from(cluster.url(DATABASE))
}

impl From<EmbeddedError> for CliError {
    fn from(error: EmbeddedError) -> Self {
        let reason = match &error {
            EmbeddedError::NotFound { .. } => "POSTGRES_NOT_FOUND",
            EmbeddedError::InUse { .. } => "DATA_FOLDER_IN_USE",
            EmbeddedError::Impassable { .. } => "DATA_FOLDER_IMPASSABLE",
            EmbeddedError::WrongVersion { .. } => "POSTGRES_OTHER_VERSION",
            _ => "POSTGRES_NOT_STARTED",
        };
        Self::Refused { reason: reason.to_owned(), message: error.to_string() }
    }
}
