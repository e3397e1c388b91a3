//! The owner's database URL, which few verbs need and no running process has.

use clap::Args;
use secrecy::SecretString;
use undolog_store::owner::Owner;

use crate::error::CliError;

/// Where the database is, as its owner reaches it.
#[derive(Debug, Clone, Args)]
pub struct OwnerArgs {
    /// Database URL of the owner: a direct connection, with no transaction pooler in between.
    #[arg(
        long,
        global = true,
        env = "UNDOLOG_OWNER_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub owner_url: Option<SecretString>,
    /// Used when no owner's URL is given.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
}

impl OwnerArgs {
    /// Connects as the owner.
    pub async fn connect(&self) -> Result<Owner, CliError> {
        Ok(Owner::connect(self.url()?).await?)
    }

    /// The URL to use.
    pub fn url(&self) -> Result<&SecretString, CliError> {
        self.owner_url.as_ref().or(self.database_url.as_ref()).ok_or_else(|| {
            CliError::Usage(
                "a database URL is needed: --owner-url, UNDOLOG_OWNER_URL or DATABASE_URL"
                    .to_owned(),
            )
        })
    }
}
