//! Who a presented key is: looked up together with others that are presented at the same time, and
//! kept for a few seconds.
//!
//! Nobody is refused because of what others presented: a flood of invented keys makes the rounds
//! larger, not the answers fewer.

use std::{
    collections::HashMap,
    str::FromStr as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::FromRow;
use tokio::{sync::oneshot, time::Instant};
use undolog_core::role::Role;
use uuid::Uuid;

use crate::{error::StepError, owner::KeyHash, pool::Store};

/// How long an answer is kept: a revoked key works no longer than this.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// How old an answer may be that lets a call or a stream go on. It is asked for as often, so that
/// both times together stay below `KEPT_FOR`.
pub const RECHECK_EVERY: Duration = Duration::from_secs(2);
/// Answers that are kept, of known and of unknown keys each: invented keys displace no real one.
const KEPT_MAX: usize = 10_000;
/// Keys that one statement looks up.
const ROUND_MAX: usize = 1_000;
/// How long one round may take: those who wait are told soon, and the next round has another
/// connection.
const ROUND_TIME: Duration = Duration::from_secs(5);

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
    hash: Vec<u8>,
    key_id: Uuid,
    org_id: Uuid,
    org_slug: String,
    principal: String,
    role: String,
}

/// What a look-up found, for everybody who asked for the same key.
type Found = Result<Option<Arc<Identity>>, NotAnswered>;

/// Why a look-up has no answer; it can be told to many.
#[derive(Debug, Clone)]
enum NotAnswered {
    Unavailable,
    Corrupt(String),
}

impl From<NotAnswered> for StepError {
    fn from(error: NotAnswered) -> Self {
        match error {
            NotAnswered::Unavailable => sqlx::Error::PoolTimedOut.into(),
            NotAnswered::Corrupt(why) => Self::Corrupt(why),
        }
    }
}

/// Looks presented keys up.
#[derive(Debug, Clone)]
pub struct Authenticator {
    store: Store,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    known: Mutex<HashMap<KeyHash, (Instant, Arc<Identity>)>>,
    unknown: Mutex<HashMap<KeyHash, Instant>>,
    asked: Mutex<Asked>,
}

/// Keys that wait for the next round.
#[derive(Debug, Default)]
struct Asked {
    waiting: HashMap<KeyHash, Vec<oneshot::Sender<Found>>>,
    is_running: bool,
}

impl Authenticator {
    /// An authenticator on the journal.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { store, shared: Arc::default() }
    }

    /// Who presents this key; `None`: nobody whom we know.
    ///
    /// # Errors
    /// The journal does not answer.
    pub async fn authenticate(
        &self,
        presented: Option<KeyHash>,
    ) -> Result<Option<Arc<Identity>>, StepError> {
        // What has not the form of a key is looked for nowhere.
        let Some(hash) = presented else {
            metrics::counter!("undolog_auth_failures_total").increment(1);
            return Ok(None);
        };
        match self.kept(hash, KEPT_FOR) {
            Some(found) => Ok(found),
            None => self.ask(hash).await,
        }
    }

    /// Whether a key that was known is still one. It is asked for every [`RECHECK_EVERY`].
    ///
    /// # Errors
    /// The journal does not answer, so nobody knows.
    pub async fn is_valid(&self, hash: KeyHash) -> Result<bool, StepError> {
        match self.kept(hash, RECHECK_EVERY) {
            Some(found) => Ok(found.is_some()),
            None => Ok(self.ask(hash).await?.is_some()),
        }
    }

    /// Waits for the round that looks this key up.
    async fn ask(&self, hash: KeyHash) -> Result<Option<Arc<Identity>>, StepError> {
        let (sender, answer) = oneshot::channel();
        if self.shared.wait(hash, sender) {
            // One round at a time, so that a flood leaves the connections to the reports. A task of
            // its own: whoever goes away stops nobody else's look-up.
            tokio::spawn(self.clone().rounds());
        }
        Ok(answer.await.map_err(|_| StepError::Interrupted)??)
    }

    /// Looks keys up until none waits.
    async fn rounds(self) {
        let running = Running(Arc::clone(&self.shared));
        while let Some(round) = running.0.next_round() {
            let hashes: Vec<KeyHash> = round.iter().map(|(hash, _)| *hash).collect();
            // The time before the look-up, so that a key revoked during it is kept no longer.
            let asked_at = Instant::now();
            let found = self.look_up(&hashes).await;
            for (hash, askers) in round {
                let found = match &found {
                    Ok(found) => found.get(&hash).cloned().unwrap_or(Ok(None)),
                    Err(error) => Err(error.clone()),
                };
                if let Ok(found) = &found {
                    self.shared.keep(hash, asked_at, found.clone());
                }
                for asker in askers {
                    // Whoever asked may have gone away.
                    let _ = asker.send(found.clone());
                }
            }
        }
    }

    async fn look_up(&self, hashes: &[KeyHash]) -> Result<HashMap<KeyHash, Found>, NotAnswered> {
        let rows = async {
            match self.store.note(self.rows(hashes).await) {
                // The pool's connection had ended before it was asked.
                Err(error) if error.is_connection_lost() => {
                    self.store.note(self.rows(hashes).await)
                }
                first => first,
            }
        };
        let rows = tokio::time::timeout(ROUND_TIME, rows).await.unwrap_or_else(|_| {
            self.store.distrust_connections();
            Err(sqlx::Error::PoolTimedOut.into())
        });
        let rows = rows.map_err(|error| {
            if !error.is_unavailable() {
                return NotAnswered::Corrupt(error.to_string());
            }
            tracing::debug!(%error, "keys were not looked up");
            NotAnswered::Unavailable
        })?;
        let read = |row: IdentityRow| {
            let hash = KeyHash(row.hash.try_into().ok()?);
            let found = match Role::from_str(&row.role) {
                Err(error) => Err(NotAnswered::Corrupt(error.to_string())),
                Ok(role) => Ok(Some(Arc::new(Identity {
                    key_id: row.key_id,
                    org_id: row.org_id,
                    org_slug: row.org_slug,
                    principal: row.principal,
                    role,
                }))),
            };
            Some((hash, found))
        };
        Ok(rows.into_iter().filter_map(read).collect())
    }

    async fn rows(&self, hashes: &[KeyHash]) -> Result<Vec<IdentityRow>, StepError> {
        let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.as_slice()).collect();
        Ok(sqlx::query_as(
            "SELECT asked.hash, found.* FROM unnest($1::bytea[]) AS asked(hash)
             CROSS JOIN LATERAL undolog_authenticate(asked.hash) AS found",
        )
        .bind(hashes)
        .fetch_all(self.store.reserve())
        .await?)
    }

    #[expect(clippy::option_option, reason = "the outer one says whether an answer is kept")]
    fn kept(&self, hash: KeyHash, at_most: Duration) -> Option<Option<Arc<Identity>>> {
        if let Some((at, identity)) = lock(&self.shared.known).get(&hash) {
            return (at.elapsed() < at_most).then(|| Some(Arc::clone(identity)));
        }
        let unknown = lock(&self.shared.unknown);
        unknown.get(&hash).is_some_and(|at| at.elapsed() < at_most).then_some(None)
    }
}

impl Asked {
    /// The keys of one round, in no order, so that a flood has no place before the others. `None`:
    /// nobody waits, and whoever comes next begins a new task.
    fn take(&mut self) -> Option<Vec<(KeyHash, Vec<oneshot::Sender<Found>>)>> {
        if self.waiting.is_empty() {
            self.is_running = false;
            return None;
        }
        if self.waiting.len() <= ROUND_MAX {
            return Some(self.waiting.drain().collect());
        }
        let some: Vec<KeyHash> = self.waiting.keys().take(ROUND_MAX).copied().collect();
        Some(some.into_iter().filter_map(|hash| self.waiting.remove_entry(&hash)).collect())
    }
}

impl Shared {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        lock(&self.asked)
    }

    /// Puts somebody in line for the next round; true: nobody runs the rounds.
    fn wait(&self, hash: KeyHash, asker: oneshot::Sender<Found>) -> bool {
        let mut asked = self.asked();
        asked.waiting.entry(hash).or_default().push(asker);
        !std::mem::replace(&mut asked.is_running, true)
    }

    fn next_round(&self) -> Option<Vec<(KeyHash, Vec<oneshot::Sender<Found>>)>> {
        self.asked().take()
    }

    fn keep(&self, hash: KeyHash, asked_at: Instant, found: Option<Arc<Identity>>) {
        let Some(identity) = found else {
            metrics::counter!("undolog_auth_failures_total").increment(1);
            lock(&self.known).remove(&hash);
            insert(&mut lock(&self.unknown), hash, asked_at, |at| *at);
            return;
        };
        lock(&self.unknown).remove(&hash);
        insert(&mut lock(&self.known), hash, (asked_at, identity), |(at, _)| *at);
    }
}

/// Keeps an answer if there is room. Where there is none, that many keys are in use at once, so the
/// newest is simply looked up again.
fn insert<T>(kept: &mut HashMap<KeyHash, T>, hash: KeyHash, new: T, at: fn(&T) -> Instant) {
    if kept.len() >= KEPT_MAX {
        kept.retain(|_, kept| at(kept).elapsed() < KEPT_FOR);
    }
    if kept.len() < KEPT_MAX || kept.contains_key(&hash) {
        kept.insert(hash, new);
    }
}

/// The task that looks keys up. After a panic those who wait hear that their look-up was
/// interrupted, and another task may begin.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut asked = self.0.asked();
            asked.is_running = false;
            asked.waiting.clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds it can panic halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
