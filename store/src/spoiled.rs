//! Connections that are not what we take them for.
//!
//! A server that became a standby, or a database whose defaults somebody changed for a while,
//! leaves connections behind that answer every write with "read-only transaction". The pool would
//! hand them out for half an hour. So the first such answer spoils all connections that are open at
//! that time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::error::StepError;

/// When connections were found spoiled last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spoiled(Arc<Mutex<Option<Instant>>>);

impl Spoiled {
    /// Looks at an error.
    pub(crate) fn note(&self, error: &StepError) {
        if error.spoils_connections() && crate::guard!("pool.spoiled") {
            metrics::counter!("undolog_connections_spoiled_total").increment(1);
            self.all();
        }
    }

    /// All that are open now.
    pub(crate) fn all(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection of this age was made since.
    pub(crate) fn is_sound(&self, age: Duration) -> bool {
        let spoiled_at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spoiled_at.is_none_or(|at| at.elapsed() >= age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use undolog_core::reason::Reason;

    #[test]
    fn what_was_open_is_not_used_any_more() {
        let spoiled = Spoiled::default();
        assert!(spoiled.is_sound(Duration::from_secs(60)));
        spoiled.note(&StepError::refuse(Reason::Internal, "no fault of a connection"));
        assert!(spoiled.is_sound(Duration::from_secs(60)));
        spoiled.all();
        assert!(!spoiled.is_sound(Duration::from_secs(60)));
        assert!(spoiled.is_sound(Duration::ZERO));
    }
}
