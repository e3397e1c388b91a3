//! A server of the test's own: its clock can be moved, and it may be crashed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::postgres::{PgPool, PgPoolOptions};
use undolog_embedded::{Auth, Cluster, ClusterOptions};

use super::clock::Clock;
use super::folders::{base, installation, lock, open_folder};
use super::template;
use crate::wait::block_on;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// The migrated database of a private server.
const DATABASE: &str = "undolog";

/// What a test needs of its own server.
#[derive(Clone, Debug, Default)]
pub struct PrivateOptions {
    /// Survive a power cut too; a killed server keeps its data either way.
    pub fsync: bool,
    /// Parameters of the server.
    pub settings: Vec<(String, String)>,
}

/// A server of the test's own with one migrated database. Both go with this value.
#[derive(Debug)]
pub struct PrivateCluster {
    cluster: Option<Cluster>,
    folder: PathBuf,
    clock: Clock,
    pool: PgPool,
}

impl PrivateCluster {
    /// Starts a copy of a prepared server.
    pub async fn start() -> Self {
        Self::start_with(PrivateOptions::default()).await
    }

    /// Starts a copy of a prepared server with other options.
    pub async fn start_with(options: PrivateOptions) -> Self {
        let started = tokio::task::spawn_blocking(move || launch(&options));
        let (cluster, folder, clock) = started.await.expect("a server for the test");
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect_lazy(&cluster.url(DATABASE))
            .expect("the kit's own URL is well-formed");
        Self { cluster: Some(cluster), folder, clock, pool }
    }

    /// The connection URL of its migrated database, as superuser.
    pub fn url(&self) -> String {
        self.cluster().url(DATABASE)
    }

    /// A superuser's pool to look into the database, past row-level security.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Its clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets its clock, for example to the last moment of a month.
    pub async fn set_clock(&self, to: chrono::DateTime<chrono::Utc>) {
        self.clock.set(&self.url(), to).await;
    }

    /// Crashes the server and starts it again on the same port.
    pub async fn crash_and_restart(&mut self) {
        self.on_cluster(Cluster::crash_and_restart).await;
    }

    /// Stops the server in good order and starts it again on the same port.
    pub async fn restart(&mut self) {
        self.on_cluster(Cluster::restart).await;
    }

    async fn on_cluster<E: std::fmt::Display + Send + 'static>(
        &mut self,
        act: impl FnOnce(&mut Cluster) -> Result<(), E> + Send + 'static,
    ) {
        let mut cluster = self.cluster.take().expect("a cluster until drop");
        let task = tokio::task::spawn_blocking(move || {
            act(&mut cluster).unwrap_or_else(|error| panic!("{error}"));
            cluster
        });
        self.cluster = Some(task.await.expect("the server comes back"));
    }

    fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a cluster until drop")
    }
}

impl Drop for PrivateCluster {
    fn drop(&mut self) {
        drop(self.cluster.take());
        if !std::thread::panicking() {
            let _a_later_test_sweeps = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn launch(options: &PrivateOptions) -> (Cluster, PathBuf, Clock) {
    let all = base().join("private");
    open_folder(&all);
    sweep(&all);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = all.join(format!("{}-{number}", std::process::id()));
    open_folder(&folder);
    let clock = Clock::create(&folder.join("clock"));
    let data = folder.join("data");
    copy(&golden(), &data);
    let mut wanted = server(&data).fsync(options.fsync);
    for (name, value) in &options.settings {
        wanted = wanted.setting(name, value);
    }
    for (name, value) in clock.environment() {
        wanted = wanted.env(name, value);
    }
    let cluster = wanted.start().unwrap_or_else(|error| panic!("{error}"));
    (cluster, folder, clock)
}

fn server(data: &Path) -> ClusterOptions {
    ClusterOptions::new(data)
        .bin_dir(installation().bin_dir)
        .auth(Auth::Trust)
        .fsync(false)
        .setting("max_connections", "200")
}

/// A stopped server with the migrated database, made once per schema.
fn golden() -> PathBuf {
    let path = base().join(format!("golden-{}", template::name()));
    let _one_at_a_time = lock(&base().join("golden.lock"));
    if path.exists() {
        return path;
    }
    let draft = base().join("golden.draft");
    undolog_embedded::remove(&draft).unwrap_or_else(|error| panic!("{error}"));
    let cluster = server(&draft).start().unwrap_or_else(|error| panic!("{error}"));
    block_on(|| async {
        let template = template::ensure(|database| cluster.url(database)).await;
        let mut admin = template::connect(&cluster.url("postgres")).await;
        let rename = format!("ALTER DATABASE {template} RENAME TO {DATABASE}");
        template::run(&mut admin, &rename).await;
    });
    cluster.stop().unwrap_or_else(|error| panic!("{error}"));
    std::fs::rename(&draft, &path).expect("put the prepared server in place");
    path
}

/// Copies owners and modes too; shares blocks where the file system can.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("run cp");
    assert!(copied.success(), "cp -a {} {}", from.display(), to.display());
}

/// Removes servers of tests that were killed. One that lives holds its folder's lock.
fn sweep(all: &Path) {
    for entry in std::fs::read_dir(all).expect("read the private folder").flatten() {
        let data = entry.path().join("data");
        let owner = entry.file_name().to_string_lossy().split('-').next().unwrap_or("").to_owned();
        if Path::new("/proc").join(owner).exists() {
            continue;
        }
        if undolog_embedded::remove(&data).is_ok() {
            let _another_test_may_be_faster = std::fs::remove_dir_all(entry.path());
        }
    }
}
