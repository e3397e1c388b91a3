//! Who a presented key is: one indexed look-up, kept for a few seconds.

use std::{
    collections::HashMap,
    net::IpAddr,
    str::FromStr as _,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use sqlx::FromRow;
use tokio::time::Instant;
use undolog_core::{reason::Reason, role::Role};
use uuid::Uuid;

use crate::{error::StepError, owner::KeyHash, pool::Store};

/// How long an answer is kept: a revoked key works no longer than this.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// Answers that are kept.
const KEPT_MAX: usize = 10_000;
/// Unknown keys that one address may present in a row before it has to wait.
const FAILURES_BURST: f64 = 50.0;
/// Unknown keys a second that one address may present in the long run.
const FAILURES_PER_SECOND: f64 = 5.0;
/// Addresses whose failures are counted.
const PEERS_MAX: usize = 10_000;

/// Who a key belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The key.
    pub key_id: Uuid,
    /// Its organisation.
    pub org_id: Uuid,
    /// The organisation's slug.
    pub org_slug: String,
    /// Who acts.
    pub principal: String,
    /// What the key may do.
    pub role: Role,
}

#[derive(Debug, FromRow)]
struct IdentityRow {
    key_id: Uuid,
    org_id: Uuid,
    org_slug: String,
    principal: String,
    role: String,
}

/// Looks presented keys up.
#[derive(Debug)]
pub struct Authenticator {
    store: Store,
    kept: Mutex<HashMap<KeyHash, (Instant, Option<Identity>)>>,
    failures: Mutex<HashMap<IpAddr, (Instant, f64)>>,
}

impl Authenticator {
    /// An authenticator on the journal.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, kept: Mutex::default(), failures: Mutex::default() }
    }

    /// Who presents this key; `None`: nobody whom we know. An address that presented too many
    /// unknown keys is refused without a look-up.
    pub async fn authenticate(
        &self,
        presented: &str,
        peer: Option<IpAddr>,
    ) -> Result<Option<Identity>, StepError> {
        let Some(hash) = KeyHash::of(presented) else {
            self.failed(peer);
            return Ok(None);
        };
        if let Some(identity) = self.kept(hash) {
            return Ok(identity);
        }
        if peer.is_some_and(|peer| self.must_wait(peer)) {
            metrics::counter!("undolog_auth_limited_total").increment(1);
            return Err(StepError::refuse(
                Reason::RateLimited,
                "too many unknown API keys came from this address",
            ));
        }
        // The time before the look-up, so that a key revoked during it is kept no longer.
        let asked_at = Instant::now();
        let identity = self.look_up(hash).await?;
        if identity.is_none() {
            self.failed(peer);
        }
        self.keep(hash, asked_at, identity.clone());
        Ok(identity)
    }

    async fn look_up(&self, hash: KeyHash) -> Result<Option<Identity>, StepError> {
        let row = match self.store.note(self.row(hash).await) {
            // The pool's connection had ended before it was asked.
            Err(error) if error.is_connection_lost() => self.row(hash).await?,
            first => first?,
        };
        row.map(|row| {
            let role = Role::from_str(&row.role).map_err(|e| StepError::Corrupt(e.to_string()))?;
            Ok(Identity {
                key_id: row.key_id,
                org_id: row.org_id,
                org_slug: row.org_slug,
                principal: row.principal,
                role,
            })
        })
        .transpose()
    }

    async fn row(&self, hash: KeyHash) -> Result<Option<IdentityRow>, StepError> {
        Ok(sqlx::query_as("SELECT * FROM undolog_authenticate($1)")
            .bind(hash.0.as_slice())
            .fetch_optional(self.store.reserve())
            .await?)
    }

    #[expect(clippy::option_option, reason = "the outer one says whether an answer is kept")]
    fn kept(&self, hash: KeyHash) -> Option<Option<Identity>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, identity) = kept.get(&hash)?;
        (at.elapsed() < KEPT_FOR).then(|| identity.clone())
    }

    fn keep(&self, hash: KeyHash, asked_at: Instant, identity: Option<Identity>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, (at, _)| at.elapsed() < KEPT_FOR);
        }
        // Still full: that many keys are in use at once, so the newest is simply looked up again.
        if kept.len() < KEPT_MAX {
            kept.insert(hash, (asked_at, identity));
        }
    }

    fn failed(&self, peer: Option<IpAddr>) {
        metrics::counter!("undolog_auth_failures_total").increment(1);
        let Some(peer) = peer else { return };
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= PEERS_MAX {
            failures.retain(|_, (at, count)| level(*at, *count) > 0.0);
        }
        if failures.len() < PEERS_MAX || failures.contains_key(&peer) {
            let (at, count) = failures.get(&peer).copied().unwrap_or((Instant::now(), 0.0));
            failures.insert(peer, (Instant::now(), level(at, count) + 1.0));
        }
    }

    fn must_wait(&self, peer: IpAddr) -> bool {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(&peer).is_some_and(|(at, count)| level(*at, *count) >= FAILURES_BURST)
    }
}

/// What is left of a count of failures after the time that has passed.
fn level(at: Instant, count: f64) -> f64 {
    (count - at.elapsed().as_secs_f64() * FAILURES_PER_SECOND).max(0.0)
}
