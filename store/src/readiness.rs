//! Whether this process gets through to the journal: what its readiness answers, from memory and so
//! at once, also while the database does not answer anybody.

use std::{
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use undolog_core::limits::{TICK_LATE_MS, TICK_MS};

use crate::{
    error::{StepError, Trouble},
    pool::Store,
};

/// How long one look may take.
const LOOK: Duration = Duration::from_secs(4);
/// How often it is looked while all is well.
pub const LOOK_EVERY: Duration = Duration::from_millis(TICK_MS);
/// How often it is looked while something is wrong.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the last look at the journal said. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    written_at: Option<Instant>,
    trouble: Option<&'static str>,
}

impl Readiness {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write got through.
    pub fn succeeded(&self) {
        *self.state() = State { written_at: Some(Instant::now()), trouble: None };
    }

    /// Something that the process lives on did not get through.
    pub fn failed(&self, error: &StepError) {
        self.state().trouble = Some(in_words(error));
    }

    /// Looks whether the journal takes writes: `write`, which writes, and then whether there is
    /// room for more. Answers after `LOOK` at the latest.
    ///
    /// # Errors What stands in the way.
    pub async fn look<F>(&self, store: &Store, write: F) -> Result<(), StepError>
    where
        F: Future<Output = Result<(), StepError>>,
    {
        let looking = async {
            write.await?;
            if crate::guard!("ready.room") { has_room(store).await } else { Ok(()) }
        };
        let looked = match tokio::time::timeout(LOOK, looking).await {
            Ok(looked) => looked,
            Err(_) => {
                // The connection may never hear anything again; so may the others.
                store.distrust_connections();
                Err(StepError::Db(sqlx::Error::PoolTimedOut))
            }
        };
        match &looked {
            Ok(()) => self.succeeded(),
            Err(error) => self.failed(error),
        }
        looked
    }

    /// Whether the journal was written to a short while ago; if not, why not, for people.
    ///
    /// # Errors
    /// Why not.
    pub fn verdict(&self) -> Result<(), &'static str> {
        let state = self.state();
        if let Some(trouble) = state.trouble {
            return Err(trouble);
        }
        let late = Duration::from_millis(TICK_LATE_MS);
        match state.written_at {
            Some(at) if at.elapsed() <= late => Ok(()),
            _ => Err("the database does not answer"),
        }
    }
}

fn in_words(error: &StepError) -> &'static str {
    match error.sqlstate().as_deref() {
        Some("25006") => "the database is read-only",
        Some(code) if ["53100", "53400", "58030"].contains(&code) => "the database has no room",
        _ => match error {
            StepError::Db(error) => Trouble::of(error).in_words(),
            _ => "the database does not answer",
        },
    }
}

/// Writes a little to a temporary file where the database's tables lie, since a full disk still
/// takes a change of a row that fits into its page. The connection's memory is too small for what
/// is asked (see [`Store`]), so that the server has to write it out.
async fn has_room(store: &Store) -> Result<(), StepError> {
    let written = sqlx::query(
        "SELECT count(DISTINCT repeat('room', 40) || n) FROM generate_series(1, 2000) AS n",
    );
    store.note(written.execute(store.ticks()).await.map(drop).map_err(StepError::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_after_a_write_and_not_after_a_failure() {
        let readiness = Readiness::default();
        assert_eq!(readiness.verdict(), Err("the database does not answer"));
        readiness.succeeded();
        assert_eq!(readiness.verdict(), Ok(()));
        readiness.failed(&StepError::Db(sqlx::Error::PoolTimedOut));
        assert_eq!(readiness.verdict(), Err("the database does not answer"));
        readiness.succeeded();
        assert_eq!(readiness.verdict(), Ok(()));
    }
}
