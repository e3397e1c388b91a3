//! A bounded number of places, of which nobody can have all: an organisation has at most half of
//! them, and one key at most half of that.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use undolog_core::{
    networks::client_network,
    reason::{Reason, Refusal},
};
use uuid::Uuid;

use crate::counts::{count, less};

/// What an organisation may have of all places, and a key of its organisation's.
const SHARE: usize = 2;

/// Who takes a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Who {
    /// The organisation.
    pub org_id: Uuid,
    /// The key.
    pub key_id: Uuid,
}

impl Who {
    /// A client without a key takes the place of its address; an IPv6 client that of its network.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        let id = Uuid::from_u128(client_network(address).into());
        Self { org_id: id, key_id: id }
    }
}

/// The places of one kind.
#[derive(Debug)]
pub struct Places {
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
pub struct Place {
    places: Arc<Places>,
    who: Option<Who>,
    count: usize,
}

impl Places {
    /// So many places. `what` says in the plural what one is for.
    #[must_use]
    pub fn new(what: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self { what, most, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        // Nothing that holds it can panic halfway through a change.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place. `None`: a caller without a key, in development mode.
    pub fn take(self: &Arc<Self>, who: Option<Who>) -> Result<Place, Refusal> {
        self.take_many(who, 1)
    }

    /// Takes so many places at once, or none.
    pub fn take_many(self: &Arc<Self>, who: Option<Who>, n: usize) -> Result<Place, Refusal> {
        let mut taken = self.taken();
        if taken.all + n > self.most {
            let full = format!("there are as many {} here as there may be; ask again", self.what);
            return Err(Refusal::because(Reason::Unavailable, full));
        }
        if let Some(who) = who {
            let of_org = (self.most / SHARE).max(1);
            let of_key = (of_org / SHARE).max(1);
            if count(&taken.by_org, who.org_id) + n > of_org {
                return Err(self.refused("organisation", of_org));
            }
            if count(&taken.by_key, who.key_id) + n > of_key {
                return Err(self.refused("key", of_key));
            }
        }
        taken.all += n;
        if let Some(who) = who {
            *taken.by_org.entry(who.org_id).or_default() += n;
            *taken.by_key.entry(who.key_id).or_default() += n;
        }
        drop(taken);
        Ok(Place { places: Arc::clone(self), who, count: n })
    }

    fn refused(&self, whose: &'static str, limit: usize) -> Refusal {
        let what = self.what;
        let why = format!("this {whose} has {limit} {what} here, as many as it may");
        Refusal::because(Reason::RateLimited, why).with("limit", limit).with("of", whose)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= self.count;
        if let Some(who) = self.who {
            less(&mut taken.by_org, who.org_id, self.count);
            less(&mut taken.by_key, who.key_id, self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(org: u128, key: u128) -> Option<Who> {
        Some(Who { org_id: Uuid::from_u128(org), key_id: Uuid::from_u128(key) })
    }

    #[test]
    fn nobody_can_have_all_places() {
        let places = Places::new("calls under way", 8);
        let take = |who| places.take(who);
        let first = [take(who(1, 1)).expect("a place"), take(who(1, 1)).expect("a place")];
        let refused = take(who(1, 1)).expect_err("the key has its share");
        assert_eq!(refused.reason, Reason::RateLimited);
        assert!(refused.retry_after_ms.is_some());
        let other_key = [take(who(1, 2)).expect("a place"), take(who(1, 2)).expect("a place")];
        let refused = take(who(1, 3)).expect_err("the organisation has its share");
        assert_eq!(refused.reason, Reason::RateLimited);
        let others = [4, 5].map(|key| [take(who(2, key)), take(who(2, key))]);
        assert!(others.iter().flatten().all(Result::is_ok), "another organisation has its own");
        let refused = take(who(3, 6)).expect_err("the engine is full");
        assert_eq!(refused.reason, Reason::Unavailable);
        drop((first, other_key, others));
        assert!(places.take_many(who(1, 1), 3).is_err(), "more than a share at once");
        drop(places.take_many(who(1, 1), 2).expect("places"));
        let taken = places.taken();
        assert!(taken.all == 0 && taken.by_org.is_empty() && taken.by_key.is_empty());
    }
}
