//! A database of the test's own, cloned from the template.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgPool, PgPoolOptions};

use super::clock::Clock;
use super::private::PrivateCluster;
use super::shared::Shared;
use super::template;
use crate::wait::block_on;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A migrated database on the shared server. It is dropped with this value, except when the test
/// fails: then it stays to be looked at until the server's next start.
#[derive(Debug)]
pub struct TestDb {
    name: String,
    url: String,
    pool: PgPool,
    server: Option<Box<PrivateCluster>>,
}

impl TestDb {
    /// Clones the template.
    pub async fn new() -> Self {
        Self::copy_of(|shared| shared.template.clone()).await
    }

    /// A database without any schema of ours, for tests of the migrations themselves.
    pub async fn empty() -> Self {
        Self::copy_of(|_| "template0".to_owned()).await
    }

    /// The database of a server of its own, whose clock the test moves.
    pub async fn with_clock() -> Self {
        let server = PrivateCluster::start().await;
        let (url, pool) = (server.url(), server.pool().clone());
        Self { name: "undolog".to_owned(), url, pool, server: Some(Box::new(server)) }
    }

    /// The clock of [`TestDb::with_clock`].
    pub fn clock(&self) -> &Clock {
        self.server.as_ref().expect("a database with a clock of its own").clock()
    }

    async fn copy_of(template: impl FnOnce(&Shared) -> String + Send + 'static) -> Self {
        let make = tokio::task::spawn_blocking(|| {
            let shared = Shared::get();
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("t_{}_{number}", std::process::id());
            let sql = format!("CREATE DATABASE {name} TEMPLATE {}", template(shared));
            block_on(|| async {
                let mut admin = template::connect(&shared.url("postgres")).await;
                // A process id is used again: the database may be an earlier test's.
                let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                template::run(&mut admin, &drop).await;
                template::run(&mut admin, &sql).await;
            });
            (shared.url(&name), name)
        });
        let (url, name) = make.await.expect("a database for the test");
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect_lazy(&url)
            .expect("the kit's own URL is well-formed");
        Self { name, url, pool, server: None }
    }

    /// The connection URL, as superuser.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A superuser's pool to look into the database, past row-level security.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if std::thread::panicking() || self.server.is_some() {
            return;
        }
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        block_on(|| async {
            let mut admin = template::connect(&Shared::get().url("postgres")).await;
            template::run(&mut admin, &sql).await;
        });
    }
}
