//! What only the owner of the database does: organisations, their projects and their keys.
//!
//! These run on one direct connection as `undolog_owner`, whose policy lets it see every row. No
//! process that serves has this login.

mod keys;
mod orgs;
mod pause;
mod projects;

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection};
use undolog_core::reason::Reason;

pub use keys::{KeyHash, KeyRow, NewKey};
pub use orgs::{OrgChange, OrgRow};
pub use pause::PauseAll;
pub use projects::{ProjectChange, ProjectRow};

use crate::{
    error::StepError,
    settings::{self, Settings},
};

/// A connection of the owner.
#[derive(Debug)]
pub struct Owner {
    conn: PgConnection,
}

impl Owner {
    /// Connects and takes the owner's role on. The login is a superuser or a member of the role.
    pub async fn connect(url: &SecretString) -> Result<Self, StepError> {
        let timeouts = [("lock_timeout", 10_000), ("statement_timeout", 60_000)];
        let options = crate::url::options(url.expose_secret())?.application_name("undolog-owner");
        let mut conn = Settings::new(&timeouts).on(options).connect().await?;
        settings::make_durable(&mut conn).await?;
        conn.execute("SET ROLE undolog_owner; SET search_path = public, pg_temp").await?;
        Ok(Self { conn })
    }

    /// Says goodbye to the server.
    pub async fn close(self) -> Result<(), StepError> {
        Ok(self.conn.close().await?)
    }
}

/// Turns a broken constraint into a refusal in the caller's words.
fn refuse_violation(error: sqlx::Error, words: &[(&str, Reason, &str)]) -> StepError {
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    match words.iter().find(|(name, ..)| constraint == Some(*name)) {
        Some((_, reason, message)) => StepError::refuse(*reason, *message),
        None => match constraint {
            Some(name) => {
                StepError::refuse(Reason::InvalidArgument, format!("refused by the rule {name}"))
            }
            None => StepError::Db(error),
        },
    }
}
