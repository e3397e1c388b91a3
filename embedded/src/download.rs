//! Fetches a server for machines that have none: one archive, checked against its published
//! SHA-256, unpacked beside its place and renamed into it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

use crate::{EmbeddedError, Installation};

/// Where the archives are published, as releases named by version.
const BASE_URL: &str = "https://github.com/theseus-rs/postgresql-binaries/releases/download";

/// The version that is fetched.
const VERSION: &str = "18.4.0";

/// An archive holds about 15 MB; a much longer answer is something else.
const ARCHIVE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long the whole download may take.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A server to be fetched once and kept in a folder.
#[derive(Clone, Debug)]
pub struct Download {
    base_url: String,
    version: String,
    folder: PathBuf,
}

impl Download {
    /// Keeps the server in this folder, which the server's user must be able to pass.
    pub fn into_folder(folder: impl AsRef<Path>) -> Self {
        Self {
            base_url: BASE_URL.to_owned(),
            version: VERSION.to_owned(),
            folder: folder.as_ref().to_owned(),
        }
    }

    /// Fetches from a mirror of the same layout.
    #[must_use]
    pub fn base_url(mut self, base_url: impl Into<String>) -> Self {
        self.base_url = base_url.into();
        self
    }

    /// Fetches another version, for example `17.10.0`.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// The server: the one that was fetched before, or a newly fetched one.
    pub fn fetch(&self) -> Result<Installation, EmbeddedError> {
        let name = format!("postgresql-{}-{}", self.version, target()?);
        let place = self.folder.join(&name);
        if !place.exists() {
            let url = format!("{}/{}/{name}.tar.gz", self.base_url, self.version);
            tracing::info!(url, "postgres.download");
            self.unpack(&url, &name, &self.get_checked(&url)?)?;
        }
        Installation::inspect(&place.join("bin"))
    }

    /// The archive, if it is what its publisher says.
    fn get_checked(&self, url: &str) -> Result<Vec<u8>, EmbeddedError> {
        let failed = |why: String| EmbeddedError::Download { url: url.to_owned(), why };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let (published, archive) = runtime
            .block_on(async {
                let client = reqwest::Client::builder().timeout(TIMEOUT).build()?;
                let published = get(&client, &format!("{url}.sha256")).await?;
                Ok((published, get(&client, url).await?))
            })
            .map_err(|error: GetError| failed(error.to_string()))?;
        let published = String::from_utf8_lossy(&published);
        let expected = published.split_whitespace().next().unwrap_or("").to_ascii_lowercase();
        let found = hex::encode(Sha256::digest(&archive));
        if expected == found {
            return Ok(archive);
        }
        Err(failed(format!("its SHA-256 is {found}, and {expected:?} is published")))
    }

    fn unpack(&self, url: &str, name: &str, archive: &[u8]) -> Result<(), EmbeddedError> {
        let draft = self.folder.join(format!("{name}.part"));
        if draft.exists() {
            std::fs::remove_dir_all(&draft).map_err(EmbeddedError::io("cannot remove", &draft))?;
        }
        std::fs::create_dir_all(&draft).map_err(EmbeddedError::io("cannot create", &draft))?;
        tar::Archive::new(GzDecoder::new(archive))
            .unpack(&draft)
            .map_err(EmbeddedError::io("cannot unpack into", &draft))?;
        let inner = draft.join(name);
        if !inner.is_dir() {
            let why = format!("the archive holds no folder {name}");
            return Err(EmbeddedError::Download { url: url.to_owned(), why });
        }
        let place = self.folder.join(name);
        std::fs::rename(&inner, &place)
            .map_err(EmbeddedError::io("cannot put in place", &place))?;
        std::fs::remove_dir_all(&draft).map_err(EmbeddedError::io("cannot remove", &draft))
    }
}

/// Why an answer could not be had.
#[derive(Debug, thiserror::Error)]
enum GetError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error("{url} is longer than {ARCHIVE_BYTES_MAX} bytes")]
    TooLong { url: String },
}

/// The whole body of a successful answer.
async fn get(client: &reqwest::Client, url: &str) -> Result<Vec<u8>, GetError> {
    let mut answer = client.get(url).send().await?.error_for_status()?;
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > ARCHIVE_BYTES_MAX {
            return Err(GetError::TooLong { url: url.to_owned() });
        }
    }
    Ok(body)
}

/// What the publisher calls this machine.
fn target() -> Result<String, EmbeddedError> {
    let system = match std::env::consts::OS {
        "linux" => "unknown-linux-gnu",
        "macos" => "apple-darwin",
        other => {
            let looked_at = format!("no server is published for {other}");
            return Err(EmbeddedError::NotFound { looked_at });
        }
    };
    Ok(format!("{}-{system}", std::env::consts::ARCH))
}
