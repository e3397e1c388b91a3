//! Waiting on a condition with a deadline; the only way in which a test waits.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// How long a condition may take that is expected at once. Generous: a slow machine is no failure.
pub const SOON: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Waits until `probe` answers `Ok`, at most [`SOON`]; the panic quotes its last `Err`.
pub async fn eventually<T, E, F>(what: &str, probe: impl FnMut() -> F) -> T
where
    E: Debug,
    F: Future<Output = Result<T, E>>,
{
    within(SOON, what, probe).await
}

/// Waits until `probe` answers `Ok`, at most `limit`; the panic quotes its last `Err`.
pub async fn within<T, E, F>(limit: Duration, what: &str, mut probe: impl FnMut() -> F) -> T
where
    E: Debug,
    F: Future<Output = Result<T, E>>,
{
    let started = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(last) if started.elapsed() >= limit => {
                panic!("not within {limit:?}: {what}; last seen: {last:?}")
            }
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Runs async code from a place that is not async, such as a `Drop`, on a thread of its own. The
/// future is made on that thread, so that it need not be `Send`.
pub(crate) fn block_on<T, F>(work: impl FnOnce() -> F + Send) -> T
where
    T: Send,
    F: Future<Output = T>,
{
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(work())
        });
        thread.join().expect("the work does not panic")
    })
}
