//! Which keys the engine knows, and what clients without one may cost.
//!
//! A key is looked up before a request's body is read. Keys that the engine knew lately pass at
//! once, whatever strangers do. Invented keys are looked up as well, because any of them could be a
//! new one; but those of an address that has presented many unknown keys wait for each other, and
//! their answer says when to come back.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Semaphore, time::Instant};
use tonic::Code;
use undolog_core::{
    networks::client_network,
    reason::{Reason, Refusal},
};
use undolog_listen::Who;
use undolog_proto::v1;
use uuid::Uuid;

use crate::{
    call::{Caller, EngineChannel, rpc},
    error::Refused,
    rate::{Rates, too_fast},
};

/// How long a key counts as known after the engine said so. The engine looks at every call itself:
/// this decides only whether a body is read.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// How long an unknown key is answered without the engine.
const UNKNOWN_FOR: Duration = Duration::from_secs(2);
/// Keys that are kept, of each kind.
const KEPT_MAX: usize = 65_536;
/// Unknown keys that one address may present a second, and in a row.
const UNKNOWN_PER_SECOND: u32 = 10;
const UNKNOWN_BURST: u32 = 50;
/// Look-ups at once: of addresses that present few unknown keys, and of the others.
const LOOKUPS_MAX: usize = 64;
const SUSPECT_LOOKUPS_MAX: usize = 16;
/// Of the others, how many may wait for their turn: the sockets of a flood must not pile up.
const SUSPECTS_WAITING_MAX: usize = 128;
/// How long a look-up waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// A key, as it is told apart from others here: never the key itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyId(pub(crate) u64);

/// What this proxy knows of keys.
#[derive(Debug)]
pub(crate) struct Keys {
    hasher: RandomState,
    /// Until when; and whose, unless it is a development server's caller without a key.
    known: Mutex<HashMap<KeyId, (Instant, Option<Who>)>>,
    unknown: Mutex<HashMap<KeyId, Instant>>,
    addresses: Rates,
    lookups: Semaphore,
    suspect_lookups: Semaphore,
    suspects_waiting: Semaphore,
}

/// What one look-up found.
enum Found {
    Known(Option<Who>),
    Unknown,
}

impl Keys {
    pub(crate) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            known: Mutex::default(),
            unknown: Mutex::default(),
            addresses: Rates::of(UNKNOWN_PER_SECOND, UNKNOWN_BURST),
            lookups: Semaphore::new(LOOKUPS_MAX),
            suspect_lookups: Semaphore::new(SUSPECT_LOOKUPS_MAX),
            suspects_waiting: Semaphore::new(SUSPECTS_WAITING_MAX),
        }
    }

    /// Tells a presented key apart; none at all counts as one.
    pub(crate) fn id(&self, key: Option<&str>) -> KeyId {
        KeyId(self.hasher.hash_one(key))
    }

    /// Whose key it is. Refused: nobody's, or the engine does not answer.
    pub(crate) async fn who(
        &self,
        channel: &EngineChannel,
        caller: &Caller,
        key: KeyId,
        address: IpAddr,
    ) -> Result<Option<Who>, Refused> {
        let now = Instant::now();
        let known = lock(&self.known).get(&key).copied();
        if let Some((until, who)) = known
            && until > now
        {
            return Ok(who);
        }
        let address = client_network(address);
        let is_unknown = lock(&self.unknown).get(&key).is_some_and(|until| *until > now);
        if is_unknown {
            return Err(self.unknown_key(address));
        }
        // A key that was known once does not wait behind those that never were.
        let is_suspect = known.is_none() && !self.addresses.has_token(address);
        let place = is_suspect.then(|| self.suspects_waiting.try_acquire());
        let Ok(_place) = place.transpose() else {
            return Err(too_fast(Duration::from_secs(1)));
        };
        let lane = if is_suspect { &self.suspect_lookups } else { &self.lookups };
        let turn = tokio::time::timeout(TURN, lane.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(too_fast(Duration::from_secs(1)));
        };
        match look_up(channel, caller).await? {
            Found::Known(who) => {
                insert(&mut lock(&self.known), key, (now + KNOWN_FOR, who), |kept| kept.0);
                Ok(who)
            }
            Found::Unknown => {
                self.forget(key);
                insert(&mut lock(&self.unknown), key, now + UNKNOWN_FOR, |kept| *kept);
                Err(self.unknown_key(address))
            }
        }
    }

    /// The engine took a call with this key: it counts as known from now on.
    pub(crate) fn confirm(&self, key: KeyId) {
        if let Some((until, _)) = lock(&self.known).get_mut(&key) {
            *until = Instant::now() + KNOWN_FOR;
        }
    }

    /// The engine refused a key that counted as known.
    pub(crate) fn forget(&self, key: KeyId) {
        lock(&self.known).remove(&key);
    }

    fn unknown_key(&self, address: u64) -> Refused {
        metrics::counter!("undolog_proxy_unknown_keys_total").increment(1);
        match self.addresses.take(address) {
            Ok(()) => Refusal::new(Reason::Unauthenticated).into(),
            Err(wait) => {
                let mut refused = too_fast(wait);
                "this address has presented too many unknown API keys"
                    .clone_into(&mut refused.message);
                refused
            }
        }
    }
}

/// Asks the engine whose key it is.
async fn look_up(channel: &EngineChannel, caller: &Caller) -> Result<Found, Refused> {
    let caller = caller.key_only();
    let proxy = Asking { channel };
    let asked = rpc!(caller.again: proxy.proxy().authenticate(v1::AuthenticateRequest {}));
    match asked {
        Ok(answer) => Ok(Found::Known(who(&answer))),
        Err(refused) if refused.code == Reason::Unauthenticated.as_str() => Ok(Found::Unknown),
        // An older engine, which let the key in and does not know the call.
        Err(refused) if refused.grpc == Some(Code::Unimplemented) => Ok(Found::Known(None)),
        Err(refused) => Err(refused),
    }
}

/// What `rpc!` looks for.
struct Asking<'a> {
    channel: &'a EngineChannel,
}

fn who(answer: &v1::AuthenticateResponse) -> Option<Who> {
    let id = |text: &str| Uuid::parse_str(text).ok();
    Some(Who { org_id: id(&answer.org_id)?, key_id: id(&answer.key_id)? })
}

/// Keeps an answer if there is room.
fn insert<T>(kept: &mut HashMap<KeyId, T>, key: KeyId, new: T, until: fn(&T) -> Instant) {
    if kept.len() >= KEPT_MAX {
        let now = Instant::now();
        kept.retain(|_, kept| until(kept) > now);
    }
    if kept.len() < KEPT_MAX || kept.contains_key(&key) {
        kept.insert(key, new);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds it can panic halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
