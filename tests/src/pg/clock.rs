//! The wall clock of a test's own Postgres, moved by the test.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::Connection;

use super::folders::{base, lock, workspace_root};
use super::template;

/// Moves the clock of one server. Every backend sees the new time at once; timeouts and waits keep
/// their real length.
#[derive(Debug)]
pub struct Clock {
    file: File,
    path: PathBuf,
    offset_us: Mutex<i64>,
}

impl Clock {
    /// Makes the offset file, at no offset.
    pub(crate) fn create(path: &Path) -> Self {
        let file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)
            .unwrap_or_else(|error| panic!("create {}: {error}", path.display()));
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644))
            .expect("let the server read its clock");
        let clock = Self { file, path: path.to_owned(), offset_us: Mutex::new(0) };
        clock.add(0);
        clock
    }

    /// What the server's environment needs.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", library()), ("CLOCK_OFFSET_FILE", self.path.clone())]
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.add(i64::try_from(by.as_micros()).expect("a duration that a test can mean"));
    }

    /// Moves the clock by this much, forward or back.
    pub fn step(&self, by: chrono::Duration) {
        self.add(by.num_microseconds().expect("a step that a test can mean"));
    }

    /// Sets the clock of the server at `url`, to within the time that one query takes.
    pub async fn set(&self, url: &str, to: DateTime<Utc>) {
        let mut conn = template::connect(url).await;
        let now: DateTime<Utc> = sqlx::query_scalar("SELECT clock_timestamp()")
            .fetch_one(&mut conn)
            .await
            .expect("read the clock");
        self.add((to - now).num_microseconds().expect("a time that a test can mean"));
        conn.close().await.expect("close");
    }

    fn add(&self, by_us: i64) {
        let mut offset_us = self.offset_us.lock().expect("no holder panics");
        *offset_us += by_us;
        // One aligned word in the page cache: a reader sees the old or the new value, never half.
        self.file.write_all_at(&offset_us.to_ne_bytes(), 0).expect("move the clock");
    }
}

/// A wrong wall clock for the program under test, while the database's stays right.
#[derive(Debug)]
pub struct Skew(Clock);

impl Skew {
    /// So much ahead of the time.
    pub fn ahead(by: Duration) -> Self {
        let skew = Self::none();
        skew.0.advance(by);
        skew
    }

    /// So much behind the time.
    pub fn behind(by: Duration) -> Self {
        let skew = Self::none();
        skew.0.add(-i64::try_from(by.as_micros()).expect("a duration that a test can mean"));
        skew
    }

    fn none() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(Clock::create(&base().join(format!("skew-{}-{number}", std::process::id()))))
    }

    /// What the program's environment needs.
    pub fn environment(&self) -> Vec<(String, String)> {
        let text = |(name, path): (&str, PathBuf)| (name.to_owned(), path.display().to_string());
        self.0.environment().into_iter().map(text).collect()
    }
}

impl Drop for Skew {
    fn drop(&mut self) {
        let _it_is_eight_bytes = std::fs::remove_file(&self.0.path);
    }
}

/// The preloaded library, compiled on first use with the C compiler that Rust links with.
fn library() -> PathBuf {
    let source = workspace_root().join("tests/clock/offset.c");
    let text = std::fs::read(&source).expect("read the clock's source");
    let path = base().join(format!("clock-{}.so", &blake3::hash(&text).to_hex()[..16]));
    let _one_at_a_time = lock(&base().join("clock.lock"));
    if !path.exists() {
        let draft = path.with_extension("draft");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .args([&draft, &source])
            .arg("-ldl")
            .output()
            .expect("run cc, which moves the clock of the tests that need it");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::set_permissions(&draft, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("let the server load it");
        std::fs::rename(&draft, &path).expect("put the clock in place");
    }
    path
}
