//! Crash points and guard switches of test builds. Without the feature `testkit` both cost nothing.
//!
//! A program that is shipped has neither: `scripts/release-check.sh` looks for their names in it.

#[cfg(all(feature = "testkit", not(debug_assertions)))]
compile_error!("the feature `testkit` is for test builds: build without it, or in a debug profile");

/// Kills this process with SIGKILL here, when the environment arms the point of this name
/// (`UNDOLOG_CRASH_AT=name` or `name:3` for the third time that it is passed).
#[macro_export]
macro_rules! crash_point {
    ($name:expr) => {
        #[cfg(feature = "testkit")]
        $crate::testkit::crash_at($name);
    };
}

/// True, except in a test build whose environment takes the guard of this name out
/// (`UNDOLOG_GUARDS_OFF=name,other`).
#[macro_export]
macro_rules! guard {
    ($name:expr) => {{
        #[cfg(feature = "testkit")]
        let on = $crate::testkit::guard_on($name);
        #[cfg(not(feature = "testkit"))]
        let on = true;
        on
    }};
}

#[cfg(feature = "testkit")]
mod armed {
    use std::{
        env,
        sync::{
            LazyLock,
            atomic::{AtomicU32, Ordering},
        },
    };

    static CRASH: LazyLock<Option<(String, u32)>> = LazyLock::new(|| {
        let wanted = env::var("UNDOLOG_CRASH_AT").ok().filter(|name| !name.is_empty())?;
        let (name, nth) = wanted.split_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), nth.parse().unwrap_or(1)))
    });
    static PASSED: AtomicU32 = AtomicU32::new(0);
    static GUARDS_OFF: LazyLock<Vec<String>> = LazyLock::new(|| {
        let names = env::var("UNDOLOG_GUARDS_OFF").unwrap_or_default();
        names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect()
    });

    /// Ends the process at once when this point is armed.
    pub fn crash_at(name: &str) {
        let Some((wanted, nth)) = &*CRASH else { return };
        if wanted == name && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
            let pid = std::process::id().to_string();
            let killed = std::process::Command::new("kill").args(["-KILL", &pid]).status();
            tracing::error!(?killed, name, "crash point did not end the process");
            std::process::abort();
        }
    }

    /// Is this guard in place?
    pub fn guard_on(name: &str) -> bool {
        !GUARDS_OFF.iter().any(|off| off == name)
    }
}

#[cfg(feature = "testkit")]
pub use armed::{crash_at, guard_on};
