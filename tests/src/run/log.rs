//! What a process under test wrote, kept in a file and shown when the test fails.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::pg::workspace_root;

static NEXT: AtomicU32 = AtomicU32::new(1);

/// How many lines of a log a failure shows.
const TAIL_LINES: usize = 60;

/// The log of one process. A passing test removes it.
#[derive(Debug)]
pub(crate) struct Log {
    name: String,
    path: PathBuf,
}

impl Log {
    /// Makes an empty log and opens it twice, for stdout and stderr.
    pub(crate) fn create(name: &str) -> (Self, File, File) {
        let folder = workspace_root().join("target/undolog-logs");
        std::fs::create_dir_all(&folder).expect("create the folder of logs");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}-{name}.log", std::process::id()));
        let file = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let twin = file.try_clone().expect("open the log twice");
        (Self { name: name.to_owned(), path }, file, twin)
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let bytes = std::fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its end, for a failure message.
    pub(crate) fn tail(&self) -> String {
        let text = self.text();
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(TAIL_LINES);
        format!("--- {} ({})\n{}", self.name, self.path.display(), lines[from..].join("\n"))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        } else {
            let _a_left_over_is_harmless = std::fs::remove_file(&self.path);
        }
    }
}
