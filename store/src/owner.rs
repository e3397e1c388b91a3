//! The owner's access, for the few verbs that no running service may do: organisations, projects
//! and keys. It sees every organisation's rows.

use secrecy::SecretString;
use sqlx::PgPool;

use crate::{
    error::StepError,
    pool::{Store, StoreOptions},
};

/// The role that owns the schema; never a login of a running service.
const OWNER_ROLE: &str = "undolog_owner";

/// A handle with the owner's rights. Every write of its users is one statement, so it opens no
/// transactions.
#[derive(Debug, Clone)]
pub struct OwnerStore(Store);

impl OwnerStore {
    /// Connects as the owner; the URL's login must be allowed to take on the owner's role.
    pub async fn connect(url: SecretString) -> Result<Self, StepError> {
        let mut options = StoreOptions::new(url, Some(OWNER_ROLE), "undolog owner");
        options.connections_max = 2;
        Ok(Self(Store::connect(&options).await?))
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.0.pool()
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.0.close().await;
    }
}
