//! The pool of connections and the handle that every step runs on.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::{
    ConnectOptions as _, Connection as _,
    postgres::{PgConnectOptions, PgPool, PgPoolOptions},
};
use uuid::Uuid;

use crate::{
    error::{Decided, StepError},
    lanes::{Key, LOCK_PATIENCE, Lane, Lanes, Queued, REPORT_CONNECTIONS, Turn},
    registry::{Apart, Asked, RegistryCache},
    settings::{self, Settings},
    spoiled::Spoiled,
    step::Step,
};

/// How long it is looked for why no connection can be made.
const CAUSE: Duration = Duration::from_secs(3);
/// How long what is kept beside the pool waits for a connection: each of its statements is short.
const ASIDE: Duration = Duration::from_secs(3);
/// How long one try of a step may take: longer than each of its statements may.
const ATTEMPT_MAX: Duration = Duration::from_secs(60);
/// A connection that nobody used for so long is asked whether it still lives, and how long it may
/// take to say so.
const IDLE: Duration = Duration::from_millis(100);
const PING: Duration = Duration::from_secs(2);
/// The first and the longest pause of a step that met a held lock.
const HELD_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

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
            acquire_timeout_ms: 5_000,
            statement_timeout_ms: 15_000,
        }
    }
}

/// A handle on the journal: cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    /// What this handle's transactions run on.
    pool: PgPool,
    /// For reports and for looking keys up, also when everything else waits.
    reserve: PgPool,
    /// For ticks alone.
    ticks: PgPool,
    registry: Arc<RegistryCache>,
    lanes: Lanes,
    settings: Settings,
    spoiled: Spoiled,
    /// Organisations whose notifications are about to get a ticket.
    telling: Arc<Mutex<HashSet<Uuid>>>,
}

impl Store {
    /// Opens a pool. The first connection is made at once, so that a wrong URL is heard here.
    pub async fn connect(options: &StoreOptions) -> Result<Self, StepError> {
        let settings = settings_of(options);
        let connect = connect_options(options)?;
        let spoiled = Spoiled::default();
        let patience = Duration::from_millis(options.acquire_timeout_ms);
        let pooled = |connections| pool_options(connections, &spoiled);
        let pool = pooled(options.connections_max)
            .acquire_timeout(patience)
            .connect_with(connect.clone())
            .await;
        let pool = match pool {
            Ok(pool) => pool,
            // The pool tries until its time is over and does not say what stood in the way.
            Err(sqlx::Error::PoolTimedOut) => return Err(cause(options).await),
            Err(error) => return Err(error.into()),
        };
        // Opened when they are needed: a process that does not report has no connection for it.
        let aside = |connections, connect| {
            pooled(connections).acquire_timeout(ASIDE).connect_lazy_with(connect)
        };
        // So little memory that a look for room on the disk finds it. Nothing else needs more
        // there.
        let tight = connect.clone().options([("work_mem", "64kB"), ("temp_tablespaces", "")]);
        Ok(Self {
            pool,
            reserve: aside(REPORT_CONNECTIONS, connect.clone()),
            ticks: aside(1, tight),
            registry: Arc::default(),
            lanes: Lanes::new(options.connections_max, patience),
            settings,
            spoiled,
            telling: Arc::default(),
        })
    }

    /// The pool, for this crate's readers and for the queue library.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The connections that are kept for reports and for looking keys up.
    pub(crate) fn reserve(&self) -> &PgPool {
        &self.reserve
    }

    /// The connection that is kept for ticks: nothing that waits is in their way.
    pub(crate) fn ticks(&self) -> &PgPool {
        &self.ticks
    }

    /// What every connection is set to.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Parsed tools and compensations, kept until their organisation's registry changes.
    pub(crate) fn registry(&self) -> &RegistryCache {
        &self.registry
    }

    /// Looks at how something ended. After an error that says that a connection is not what we take
    /// it for, those that are open now are used no more.
    pub fn note<T>(&self, outcome: Result<T, StepError>) -> Result<T, StepError> {
        outcome.inspect_err(|error| self.spoiled.note(error))
    }

    /// Connections that are open now are used no more.
    pub(crate) fn distrust_connections(&self) {
        self.spoiled.all();
    }

    /// Runs one step to its end in a task of its own and answers what it decided. A caller that is
    /// dropped while it waits for its turn leaves the queue and nothing happens; one that is
    /// dropped later does not interrupt the step.
    ///
    /// # Errors
    /// The step's own.
    pub async fn run<S: Step>(&self, step: S) -> Result<S::Reply, StepError> {
        self.run_in(self.turn(Key::of(&step), S::LANE).await?, step).await
    }

    /// Waits for a step's turn, for whoever decides only then what is asked.
    ///
    /// # Errors
    /// The database does not answer anybody, or the session is held.
    pub async fn turn(&self, key: Key, lane: Lane) -> Result<Turn, StepError> {
        self.lanes.step(key, lane).await
    }

    /// Waits for a reader's turn. Readers queue beside the steps, so that neither starves the
    /// other.
    ///
    /// # Errors
    /// The database does not answer anybody.
    pub async fn reading_turn(&self) -> Result<Turn, StepError> {
        self.lanes.reading().await
    }

    /// Runs one step in a turn that was waited for. A step that waits too long for a lock gives its
    /// connection back and tries again; whoever asked may leave in between.
    ///
    /// # Errors
    /// The step's own.
    pub async fn run_in<S: Step>(&self, turn: Turn, step: S) -> Result<S::Reply, StepError> {
        let (began, step) = (Instant::now(), Arc::new(step));
        let (mut turn, mut pause, mut asked) = (turn, HELD_PAUSE.0, Asked::default());
        loop {
            let queued = match self.attempt(turn, Arc::clone(&step)).await? {
                Attempt::Ended(outcome) => return outcome?.map_err(StepError::Refused),
                Attempt::Held(error, _) if began.elapsed() >= LOCK_PATIENCE => return Err(error),
                Attempt::Held(_, queued) => queued,
                Attempt::Apart(work, queued) => {
                    // No connection waits for it; the session's other steps do.
                    asked.serve(work, self, step.org_id()).await?;
                    turn = self.lanes.again(queued).await?;
                    continue;
                }
            };
            metrics::counter!("undolog_step_held_total", "step" => S::NAME).increment(1);
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(HELD_PAUSE.1);
            turn = self.lanes.again(queued).await?;
        }
    }

    async fn attempt<S: Step>(
        &self,
        turn: Turn,
        step: Arc<S>,
    ) -> Result<Attempt<S::Reply>, StepError> {
        let mut store = self.clone();
        if turn.is_reserved() {
            store.pool = self.reserve.clone();
        }
        let running = async move {
            let ran = tokio::time::timeout(ATTEMPT_MAX, crate::step::run(&store, &*step)).await;
            let outcome = ran.unwrap_or_else(|_| {
                // Nothing comes from there any more: the network swallows it, or the server stands.
                store.distrust_connections();
                Err(sqlx::Error::PoolTimedOut.into())
            });
            match store.note(outcome) {
                Err(StepError::Apart(work)) => Attempt::Apart(work, turn.without_connection()),
                Err(error) if error.is_lock_timeout() => {
                    Attempt::Held(error, turn.without_connection())
                }
                outcome => {
                    turn.end(!outcome.as_ref().is_err_and(StepError::is_unavailable));
                    Attempt::Ended(outcome)
                }
            }
        };
        if !crate::guard!("step.detached") {
            return Ok(Box::pin(running).await);
        }
        tokio::spawn(running).await.map_err(|_| StepError::Interrupted)
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

    /// Closes the pools after the connections in use came back.
    pub async fn close(&self) {
        tokio::join!(self.pool.close(), self.reserve.close(), self.ticks.close());
    }
}

/// How one try of a step ended.
enum Attempt<T> {
    /// It committed, refused or failed.
    Ended(Result<Decided<T>, StepError>),
    /// It needs work on schemas done; nothing was written.
    Apart(Apart, Option<Queued>),
    /// Somebody held a lock that it needs; nothing was written.
    Held(StepError, Option<Queued>),
}

impl Key {
    /// What a step queues behind.
    pub fn of<S: Step>(step: &S) -> Self {
        let org_id = step.org_id();
        step.session_id().map_or(Self::Org(org_id), |id| Self::Session(org_id, id))
    }
}

/// A pool whose connections make their commits durable, and which gives out none that was open when
/// an error said that connections are not what we take them for.
fn pool_options(connections: u32, spoiled: &Spoiled) -> PgPoolOptions {
    let spoiled = spoiled.clone();
    PgPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .after_connect(|conn, _| Box::pin(settings::make_durable(conn)))
        .before_acquire(move |connection, known| {
            let is_sound = spoiled.is_sound(known.age);
            let was_idle = known.idle_for >= IDLE;
            Box::pin(async move {
                // The server may have been restarted meanwhile: that costs no caller an answer.
                let lives = async {
                    let pinged = tokio::time::timeout(PING, connection.ping()).await;
                    matches!(pinged, Ok(Ok(())))
                };
                Ok(is_sound && (!was_idle || lives.await))
            })
        })
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

fn settings_of(options: &StoreOptions) -> Settings {
    Settings::new(&[
        ("statement_timeout", options.statement_timeout_ms),
        ("lock_timeout", 10_000),
        ("idle_in_transaction_session_timeout", 30_000),
    ])
}

/// Connection options with the settings that every session of ours has.
pub fn connect_options(options: &StoreOptions) -> Result<PgConnectOptions, StepError> {
    let connect = crate::url::options(options.url.expose_secret())?
        .application_name(&options.application_name)
        // Only a connection over TCP has it, so it is not looked at afterwards.
        .options([("tcp_user_timeout", "20000")]);
    let mut connect = settings_of(options).on(connect);
    if let Some(role) = &options.role {
        connect = connect.options([("role", role.as_str())]);
    }
    Ok(connect)
}
