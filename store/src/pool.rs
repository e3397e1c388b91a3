//! The pool of connections and the handle that every step runs on.

use std::{
    collections::HashSet,
    str::FromStr as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{
    ConnectOptions as _,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};
use uuid::Uuid;

use crate::{
    error::StepError,
    registry::RegistryCache,
    step::Step,
    turns::{Turn, Turns},
};

/// How long it is looked for why no connection can be made.
const CAUSE: Duration = Duration::from_secs(3);

/// How to reach Postgres.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Connection URL; it can hold a password.
    pub url: SecretString,
    /// Role to take on after connecting (`undolog_app`, `undolog_worker`), if the login is another.
    pub role: Option<String>,
    /// Shown in `pg_stat_activity`.
    pub application_name: String,
    /// Upper bound of connections. More than about four per core makes Postgres slower.
    pub connections_max: u32,
    /// How long a caller waits for a free connection.
    pub acquire_timeout_ms: u64,
    /// Upper bound of one statement.
    pub statement_timeout_ms: u64,
}

impl StoreOptions {
    /// Options with the defaults of an engine.
    pub fn new(url: SecretString, role: Option<&str>, application_name: &str) -> Self {
        Self {
            url,
            role: role.map(str::to_owned),
            application_name: application_name.to_owned(),
            connections_max: 8,
            acquire_timeout_ms: 10_000,
            statement_timeout_ms: 15_000,
        }
    }
}

/// A handle on the journal: cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    registry: Arc<RegistryCache>,
    steps: Turns,
    reads: Turns,
    /// Organisations whose notifications are about to get a ticket.
    telling: Arc<Mutex<HashSet<Uuid>>>,
}

impl Store {
    /// Opens a pool. The first connection is made at once, so that a wrong URL is heard here.
    pub async fn connect(options: &StoreOptions) -> Result<Self, StepError> {
        let pool = PgPoolOptions::new()
            .max_connections(options.connections_max)
            .acquire_timeout(Duration::from_millis(options.acquire_timeout_ms))
            .test_before_acquire(false)
            .connect_with(connect_options(options)?)
            .await;
        let pool = match pool {
            Ok(pool) => pool,
            // The pool tries until its time is over and does not say what stood in the way.
            Err(sqlx::Error::PoolTimedOut) => return Err(cause(options).await),
            Err(error) => return Err(error.into()),
        };
        let patience = Duration::from_millis(options.acquire_timeout_ms);
        let turns = || Turns::new(options.connections_max, patience);
        let (registry, telling) = (Arc::default(), Arc::default());
        Ok(Self { pool, registry, steps: turns(), reads: turns(), telling })
    }

    /// The pool, for this crate's readers and for the queue library.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Parsed tools and compensations, kept until their organisation's registry changes.
    pub(crate) fn registry(&self) -> &RegistryCache {
        &self.registry
    }

    /// Runs one step to its end in a task of its own and answers what it decided. A caller that is
    /// dropped while it waits for its turn leaves the queue and nothing happens; one that is
    /// dropped later does not interrupt the step.
    ///
    /// # Errors
    /// The step's own.
    pub async fn run<S: Step>(&self, step: S) -> Result<S::Reply, StepError> {
        self.run_in(self.turn().await?, step).await
    }

    /// Waits for a step's turn, for whoever decides only then what is asked.
    ///
    /// # Errors
    /// The database does not answer anybody.
    pub async fn turn(&self) -> Result<Turn, StepError> {
        self.steps.wait().await
    }

    /// Waits for a reader's turn. Readers queue beside the steps, so that neither starves the
    /// other.
    ///
    /// # Errors
    /// The database does not answer anybody.
    pub async fn reading_turn(&self) -> Result<Turn, StepError> {
        self.reads.wait().await
    }

    /// Runs one step in a turn that was waited for.
    ///
    /// # Errors
    /// The step's own.
    pub async fn run_in<S: Step>(&self, turn: Turn, step: S) -> Result<S::Reply, StepError> {
        let store = self.clone();
        let running = async move {
            let decided = crate::step::run(&store, &step).await;
            turn.end(!decided.as_ref().is_err_and(StepError::is_unavailable));
            decided
        };
        if !crate::guard!("step.detached") {
            return Box::pin(running).await?.map_err(StepError::Refused);
        }
        let task = tokio::spawn(running);
        task.await.unwrap_or(Err(StepError::Interrupted))?.map_err(StepError::Refused)
    }

    /// Issues the ticket that has an organisation's notifications sent, soon and once for all that
    /// ask meanwhile. When this process dies before, the sweep issues it.
    pub(crate) fn wake_notifier(&self, org_id: Uuid) {
        if !self.telling().insert(org_id) {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            // Whoever asks from here on may have committed too late for the ticket below.
            store.telling().remove(&org_id);
            if let Err(error) = crate::notify::wake(&store, org_id).await {
                tracing::debug!(org.id = %org_id, %error, "notifications wait for the sweep");
            }
        });
    }

    fn telling(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        // Nothing that holds it can panic halfway through a change.
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the pool after the connections in use came back.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

/// Why no connection can be made.
async fn cause(options: &StoreOptions) -> StepError {
    let connect = match connect_options(options) {
        Ok(connect) => connect,
        Err(error) => return error,
    };
    match tokio::time::timeout(CAUSE, connect.connect()).await {
        Ok(Err(error)) => error.into(),
        Ok(Ok(_)) | Err(_) => sqlx::Error::PoolTimedOut.into(),
    }
}

/// Connection options with the time-outs that every session of ours has.
pub fn connect_options(options: &StoreOptions) -> Result<PgConnectOptions, StepError> {
    let mut connect = PgConnectOptions::from_str(options.url.expose_secret())?
        .application_name(&options.application_name)
        .options([
            ("statement_timeout", options.statement_timeout_ms.to_string()),
            ("lock_timeout", "10000".to_owned()),
            ("idle_in_transaction_session_timeout", "30000".to_owned()),
            ("tcp_user_timeout", "20000".to_owned()),
        ]);
    if let Some(role) = &options.role {
        connect = connect.options([("role", role.as_str())]);
    }
    Ok(connect)
}
