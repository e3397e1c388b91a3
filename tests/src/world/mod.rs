//! A whole UndoLog with an organisation, a witness and an agent, for end-to-end tests.

mod agent;
mod client;
mod org;
mod registry;

use std::time::Duration;

use sqlx::postgres::PgPool;

pub use agent::{Agent, Made, grant, reason_of};
pub use client::{Client, Key, Keyed};
pub use org::Org;
pub use registry::{CompensationSpec, ToolSpec};

use crate::pg::{PrivateCluster, TestDb};
use crate::run::{Engine, EngineOptions, Worker, WorkerOptions};
use crate::witness::Witness;

/// Where the world's data lies.
#[derive(Debug)]
pub enum Database {
    /// A database on the shared server.
    Shared(TestDb),
    /// A server of its own, for tests that move its clock or crash it.
    Private(Box<PrivateCluster>),
}

impl Database {
    /// The connection URL, as superuser.
    pub fn url(&self) -> String {
        match self {
            Self::Shared(db) => db.url().to_owned(),
            Self::Private(server) => server.url(),
        }
    }

    /// A superuser's pool, to look.
    pub fn pool(&self) -> &PgPool {
        match self {
            Self::Shared(db) => db.pool(),
            Self::Private(server) => server.pool(),
        }
    }
}

/// A running UndoLog. Fields are dropped in this order: processes before the database.
#[derive(Debug)]
pub struct World {
    /// The engines.
    pub engines: Vec<Engine>,
    /// The workers.
    pub workers: Vec<Worker>,
    /// The service that tools and compensations call.
    pub witness: Witness,
    /// The organisation.
    pub org: Org,
    /// Where the data lies.
    pub database: Database,
}

impl World {
    /// One engine and one worker over a database of the shared server.
    pub async fn start() -> Self {
        let mut world = Self::without_servers().await;
        world.add_engine(EngineOptions::default()).await;
        world.add_worker(WorkerOptions::default()).await;
        world
    }

    /// One engine and one worker over a server whose clock the test moves.
    pub async fn start_private() -> Self {
        let mut world = Self::on(Database::Private(Box::new(PrivateCluster::start().await))).await;
        world.add_engine(EngineOptions::default()).await;
        world.add_worker(WorkerOptions::default()).await;
        world
    }

    /// Everything but engines and workers.
    pub async fn without_servers() -> Self {
        Self::on(Database::Shared(TestDb::new().await)).await
    }

    /// Everything but engines and workers, over this database.
    pub async fn on(database: Database) -> Self {
        let org = Org::create(database.pool(), "acme").await;
        let witness = Witness::start().await;
        Self { engines: Vec::new(), workers: Vec::new(), witness, org, database }
    }

    /// Starts one more engine and returns its number.
    pub async fn add_engine(&mut self, options: EngineOptions) -> usize {
        self.engines.push(Engine::start(&self.database.url(), options).await);
        self.engines.len() - 1
    }

    /// Starts one more worker and returns its number.
    pub async fn add_worker(&mut self, options: WorkerOptions) -> usize {
        self.workers.push(Worker::start(&self.database.url(), options).await);
        self.workers.len() - 1
    }

    /// The private server of [`World::start_private`].
    pub fn server(&mut self) -> &mut PrivateCluster {
        match &mut self.database {
            Database::Private(server) => server,
            Database::Shared(_) => panic!("this world has no server of its own"),
        }
    }

    /// A superuser's pool, to look.
    pub fn pool(&self) -> &PgPool {
        self.database.pool()
    }

    /// Lets time pass in which our own service was up: the clock moves and the tick with it, as if
    /// engines had ticked all along. Without that, a jump is an outage of ours (see
    /// [`World::outage`]).
    pub async fn pass(&mut self, time: Duration) {
        let Database::Private(server) = &self.database else {
            panic!("this world has no clock of its own")
        };
        let mut tx = server.pool().begin().await.expect("begin");
        // The row's lock keeps an engine from ticking between the jump and the update.
        sqlx::query("SELECT 1 FROM undolog_service FOR UPDATE")
            .execute(&mut *tx)
            .await
            .expect("hold the ticks");
        server.clock().advance(time);
        sqlx::query("UPDATE undolog_service SET last_tick_at = clock_timestamp()")
            .execute(&mut *tx)
            .await
            .expect("tick");
        tx.commit().await.expect("commit");
    }

    /// Lets time pass in which nothing of ours ran: stop engines and workers first.
    pub fn outage(&mut self, time: Duration) {
        self.server().clock().advance(time);
    }

    /// Kills all engines and workers and forgets them.
    pub fn stop_all(&mut self) {
        self.engines.clear();
        self.workers.clear();
    }

    /// A client of the first engine with the admin's key.
    pub async fn admin(&self) -> Client {
        self.client("admin", "root").await
    }

    /// A client of the first engine with a new key of this role and principal.
    pub async fn client(&self, role: &str, principal: &str) -> Client {
        self.client_of(0, role, principal).await
    }

    /// A client of one of the engines with a new key of this role and principal.
    pub async fn client_of(&self, engine: usize, role: &str, principal: &str) -> Client {
        let key = self.org.key(self.pool(), role, principal).await;
        Client::new(&self.engines[engine].grpc_url(), Some(&key))
    }

    /// Registers a compensable tool and its compensation, both served by the witness.
    pub async fn tool(&self, tool: ToolSpec) {
        tool.register(&mut self.admin().await, &self.witness).await;
    }

    /// An agent that has begun a session with a lease.
    pub async fn agent(&self) -> Agent {
        self.agent_of(0).await
    }

    /// An agent of one of the engines that has begun a session with a lease.
    pub async fn agent_of(&self, engine: usize) -> Agent {
        let client = self.client_of(engine, "agent", "agent-1").await;
        Agent::begin(client, &self.witness).await
    }

    /// Checks a session whose whole rollback has ended, against the events and the witness.
    pub async fn rollback_check(&self, session: uuid::Uuid) {
        let calls = self.witness.calls_to("/undo/");
        crate::check::rollback_check(self.pool(), session, &calls).await;
    }
}
