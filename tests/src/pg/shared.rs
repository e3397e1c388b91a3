//! The server that all test processes share.
//!
//! A test runner may give every test a process of its own, so the server cannot belong to one of
//! them. The first process starts it, under a file lock; the others find it. Each process touches
//! `last_used` while it lives, and a small watcher script stops the server when nobody has done so
//! for a minute. Its data folder stays: the next run starts it in a moment, template included.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use undolog_embedded::{Auth, ClusterOptions, Running, running};

use super::folders::{base, installation, lock};
use super::template;
use crate::wait::block_on;

/// How often a living process says so; the watcher looks as often.
const TOUCH: Duration = Duration::from_secs(5);

/// Waits for `last_used` to get old, then stops the server. `stopping` is a promise to stop: a test
/// process touches first and looks for it second, the watcher makes it first and looks second, so
/// at least one of the two sees the other.
const WATCHER: &str = r#"
cd "$1" || exit 1
idle=0
touch mark
while sleep 5; do
  [ -s data/pgdata/postmaster.pid ] || exit 0
  if [ -n "$(find last_used -newer mark)" ]; then touch mark; idle=0; else idle=$((idle + 1)); fi
  [ "$idle" -lt 12 ] && continue
  mkdir stopping || continue
  if [ -n "$(find last_used -newer mark)" ]; then rmdir stopping; idle=0; continue; fi
  kill -INT "$(head -n 1 data/pgdata/postmaster.pid)"
  while [ -e data/pgdata/postmaster.pid ]; do sleep 1; done
  rmdir stopping
  exit 0
done
"#;

/// The shared server as one process sees it.
pub(crate) struct Shared {
    server: Running,
    pub(crate) template: String,
}

impl Shared {
    /// Finds or starts the server, once per process.
    pub(crate) fn get() -> &'static Self {
        static SHARED: OnceLock<Shared> = OnceLock::new();
        SHARED.get_or_init(Self::open)
    }

    /// The connection URL of a database, as superuser.
    pub(crate) fn url(&self, database: &str) -> String {
        self.server.url(database)
    }

    fn open() -> Self {
        let base = base().join("shared");
        std::fs::create_dir_all(&base).expect("create the shared folder");
        touch(&base);
        let _one_at_a_time = lock(&base.join("start.lock"));
        wait_for_the_watcher(&base);
        let data = base.join("data");
        let server = match running(&data).unwrap_or_else(|error| panic!("{error}")) {
            Some(server) => server,
            None => start(&data),
        };
        ensure_watcher(&base);
        keep_touching(base);
        let template = block_on(|| template::ensure(|database| server.url(database)));
        Self { server, template }
    }
}

fn start(data: &Path) -> Running {
    let cluster = ClusterOptions::new(data)
        .bin_dir(installation().bin_dir)
        .auth(Auth::Trust)
        .fsync(false)
        .setting("max_connections", "500")
        .setting("shared_buffers", "256MB")
        .setting("max_wal_size", "4GB")
        .setting("autovacuum_naptime", "5s")
        .start()
        .unwrap_or_else(|error| panic!("{error}"));
    cluster.detach();
    let server = running(data).unwrap_or_else(|error| panic!("{error}"));
    let server = server.expect("the server that was just started");
    block_on(|| drop_left_overs(&server));
    server
}

/// Databases of tests that were killed, or that failed and were kept to be looked at.
async fn drop_left_overs(server: &Running) {
    let mut admin = template::connect(&server.url("postgres")).await;
    let current = template::name();
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT datname FROM pg_database WHERE datname LIKE 't\\_%' OR datname LIKE 'template\\_%'",
    )
    .fetch_all(&mut admin)
    .await
    .expect("read the databases");
    for name in names.iter().filter(|name| **name != current) {
        template::run(&mut admin, &format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"))
            .await;
    }
}

/// A watcher that is about to stop the server finishes first, unless it has been killed itself.
fn wait_for_the_watcher(base: &Path) {
    let stopping = base.join("stopping");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while stopping.exists() {
        let server = running(&base.join("data")).unwrap_or_else(|error| panic!("{error}"));
        if server.is_none() || std::time::Instant::now() > deadline {
            let _its_watcher_may_be_faster = std::fs::remove_dir(&stopping);
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[expect(clippy::zombie_processes, reason = "the watcher outlives this process on purpose")]
fn ensure_watcher(base: &Path) {
    let pid_file = base.join("watcher.pid");
    let known = std::fs::read_to_string(&pid_file).unwrap_or_default();
    let watches = std::fs::read(format!("/proc/{}/cmdline", known.trim()));
    if watches.is_ok_and(|line| String::from_utf8_lossy(&line).contains("stopping")) {
        return;
    }
    let watcher = Command::new("sh")
        .args(["-c", WATCHER, "watcher"])
        .arg(base)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("start the watcher");
    std::fs::write(&pid_file, watcher.id().to_string()).expect("write the watcher's pid");
}

fn keep_touching(base: PathBuf) {
    std::thread::spawn(move || {
        loop {
            touch(&base);
            std::thread::sleep(TOUCH);
        }
    });
}

fn touch(base: &Path) {
    let path = base.join("last_used");
    let touched = File::create(&path).and_then(|file| {
        std::io::Write::write_all(&mut &file, std::process::id().to_string().as_bytes())
    });
    touched.unwrap_or_else(|error| panic!("touch {}: {error}", path.display()));
}
