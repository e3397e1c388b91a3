//! A transaction of one organisation: the only way to open one.

use sqlx::{Executor as _, PgConnection, Postgres, pool::PoolConnection};
use uuid::Uuid;

use crate::{error::StepError, pool::Store};

/// How long a statement of a step waits for a lock with a connection in its hands. A step that hits
/// this is tried again later, without a connection in between.
const LOCK_WAIT_MS: u32 = 500;

/// One open transaction with its organisation set. A connection whose transaction did not end
/// cleanly (an error, a panic, a dropped future, at any point) never goes back to the pool: an open
/// transaction or another organisation's setting cannot reach the next borrower.
#[derive(Debug)]
pub struct Tenant {
    conn: PoolConnection<Postgres>,
    org_id: Uuid,
    store: Store,
    clean: bool,
    /// Notifications were written, and are to be sent.
    tells: bool,
}

impl Tenant {
    /// Opens a transaction. READ COMMITTED is said explicitly: a database-wide default of another
    /// level would make the look-up after the session lock see an older snapshot.
    pub async fn begin(store: &Store, org_id: Uuid) -> Result<Self, StepError> {
        Self::open(store, org_id, "").await
    }

    /// Opens a step's transaction: its lock waits are short, since they cost a connection.
    pub(crate) async fn begin_step(store: &Store, org_id: Uuid) -> Result<Self, StepError> {
        if !crate::guard!("step.short_locks") {
            return Self::begin(store, org_id).await;
        }
        Self::open(store, org_id, &format!("; SET LOCAL lock_timeout = {LOCK_WAIT_MS}")).await
    }

    async fn open(store: &Store, org_id: Uuid, settings: &str) -> Result<Self, StepError> {
        // A uuid's text has no quote, so it can stand in the statement.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; \
             SET LOCAL undolog.current_org_id = '{org_id}'{settings}"
        );
        let first = store.note(Self::begun(store, org_id, &begin).await);
        match first {
            // The pool's connection had ended long before; nothing was asked yet, so another will
            // do.
            Err(error) if error.is_connection_lost() => Self::begun(store, org_id, &begin).await,
            first => first,
        }
    }

    async fn begun(store: &Store, org_id: Uuid, begin: &str) -> Result<Self, StepError> {
        let conn = store.pool().acquire().await?;
        let mut tenant = Self { conn, org_id, store: store.clone(), clean: false, tells: false };
        tenant.conn.execute(begin).await?;
        Ok(tenant)
    }

    /// The organisation of this transaction.
    pub fn org_id(&self) -> Uuid {
        self.org_id
    }

    /// The store that opened this transaction.
    pub fn store(&self) -> Store {
        self.store.clone()
    }

    /// The connection, to run statements on.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.conn
    }

    /// The organisation's notifications are to be sent once this transaction is committed.
    pub(crate) fn tell_afterwards(&mut self) {
        self.tells = true;
    }

    /// Commits. An error here means that the outcome is not known to us.
    pub async fn commit(mut self) -> Result<(), StepError> {
        self.conn.execute("COMMIT").await?;
        self.clean = true;
        if self.tells {
            self.store.wake_notifier(self.org_id);
        }
        Ok(())
    }

    /// Rolls back.
    pub async fn rollback(mut self) -> Result<(), StepError> {
        self.conn.execute("ROLLBACK").await?;
        self.clean = true;
        Ok(())
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if !self.clean && crate::guard!("tenant.close") {
            self.conn.close_on_drop();
        }
    }
}
