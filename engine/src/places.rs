//! A bounded number of places, of which nobody can have all: an organisation has at most half of
//! them, and one key at most half of that.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tonic::Status;
use undolog_core::reason::{Reason, Refusal};
use undolog_store::guard;
use uuid::Uuid;

use crate::status;

/// What an organisation may have of all places, and a key of its organisation's.
const SHARE: usize = 2;

/// Who takes a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) org_id: Uuid,
    pub(crate) key_id: Uuid,
}

/// The places of one kind.
#[derive(Debug)]
pub(crate) struct Places {
    /// What one place is for, in the plural.
    what: &'static str,
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_org: HashMap<Uuid, usize>,
    by_key: HashMap<Uuid, usize>,
}

/// One place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    who: Option<Who>,
}

impl Places {
    pub(crate) fn new(what: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self { what, most, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing that holds it can panic halfway through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. `None`: a caller without a key, in development mode.
    pub(crate) fn take(self: &Arc<Self>, who: Option<Who>) -> Result<Place, Status> {
        let mut taken = self.taken();
        if taken.all >= self.most {
            let full = format!("this engine has as many {} as it may; ask another one", self.what);
            return Err(status::of_refusal(&Refusal::because(Reason::Unavailable, full)));
        }
        if let Some(who) = who.filter(|_| guard!("places.share")) {
            let of_org = (self.most / SHARE).max(1);
            let of_key = (of_org / SHARE).max(1);
            if count(&taken.by_org, who.org_id) >= of_org {
                return Err(self.refused("organisation", of_org));
            }
            if count(&taken.by_key, who.key_id) >= of_key {
                return Err(self.refused("key", of_key));
            }
        }
        taken.all += 1;
        if let Some(who) = who {
            *taken.by_org.entry(who.org_id).or_default() += 1;
            *taken.by_key.entry(who.key_id).or_default() += 1;
        }
        drop(taken);
        Ok(Place { places: Arc::clone(self), who })
    }

    fn refused(&self, whose: &'static str, limit: usize) -> Status {
        metrics::counter!("undolog_shares_exceeded_total", "of" => whose).increment(1);
        let what = self.what;
        let why = format!("this {whose} has {limit} {what} at this engine, as many as it may");
        let refusal = Refusal::because(Reason::RateLimited, why);
        status::of_refusal(&refusal.with("limit", limit).with("of", whose))
    }
}

fn count<K: Eq + Hash>(counts: &HashMap<K, usize>, key: K) -> usize {
    counts.get(&key).copied().unwrap_or_default()
}

fn less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(n) = counts.get_mut(&key) {
        *n -= 1;
        if *n == 0 {
            counts.remove(&key);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(who) = self.who {
            less(&mut taken.by_org, who.org_id);
            less(&mut taken.by_key, who.key_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;
    use tonic_types::StatusExt as _;

    fn who(org: u128, key: u128) -> Option<Who> {
        Some(Who { org_id: Uuid::from_u128(org), key_id: Uuid::from_u128(key) })
    }

    #[test]
    fn nobody_can_have_all_places() {
        let places = Places::new("calls under way", 8);
        let take = |who| places.take(who);
        let first = [take(who(1, 1)).expect("a place"), take(who(1, 1)).expect("a place")];
        let refused = take(who(1, 1)).expect_err("the key has its share");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let details = refused.get_error_details();
        assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some("RATE_LIMITED"));
        assert!(details.retry_info().is_some_and(|retry| retry.retry_delay.is_some()));
        let other_key = [take(who(1, 2)).expect("a place"), take(who(1, 2)).expect("a place")];
        let refused = take(who(1, 3)).expect_err("the organisation has its share");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let others = [4, 5].map(|key| [take(who(2, key)), take(who(2, key))]);
        assert!(others.iter().flatten().all(Result::is_ok), "another organisation has its own");
        let refused = take(who(3, 6)).expect_err("the engine is full");
        assert_eq!(refused.code(), Code::Unavailable);
        drop((first, other_key, others));
        let taken = places.taken();
        assert!(taken.all == 0 && taken.by_org.is_empty() && taken.by_key.is_empty());
    }
}
