//! Calls that wait for their effect. A waiter holds no connection: it is woken by a report in this
//! process, else by one batched look of the whole engine at every effect that is waited for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use undolog_store::{
    Store,
    read::{ApprovalMark, Waited, approval_marks, waited},
};
use uuid::Uuid;

/// How often the engine looks at the effects that are waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Effects that one look asks for in one query.
const LOOK_MAX: usize = 500;
/// Organisations that one look asks about at the same time.
const LOOKS_AT_ONCE: usize = 4;

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The grant that is out ends, however it does.
    GrantEnds,
    /// The approval is decided.
    Decided,
    /// Something happens to the approval request that stands here.
    Moves(ApprovalMark),
}

impl Until {
    fn is_over(self, now: &Waited) -> bool {
        match self {
            Self::GrantEnds => !now.is_granted,
            Self::Decided => now.state != "pending",
            Self::Moves(_) => false,
        }
    }
}

/// What one look asks for: effects and approval requests by organisation.
type Looked = HashMap<Uuid, (Vec<Uuid>, Vec<Uuid>)>;

#[derive(Debug)]
struct Waiter {
    org_id: Uuid,
    effect_id: Uuid,
    until: Until,
    woken: Arc<Notify>,
}

/// Every waiting call of this engine.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    waiters: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
}

/// A place in the hub; it is left when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    hub: Arc<Hub>,
    number: u64,
    woken: Arc<Notify>,
}

impl Waiting {
    /// Waits for the change.
    pub(crate) async fn changed(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.hub.lock().remove(&self.number);
    }
}

impl Hub {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to wait. A change before this moment is seen by the engine's next look.
    pub(crate) fn wait(self: &Arc<Self>, org_id: Uuid, effect_id: Uuid, until: Until) -> Waiting {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let woken = Arc::new(Notify::new());
        let waiter = Waiter { org_id, effect_id, until, woken: Arc::clone(&woken) };
        self.lock().insert(number, waiter);
        Waiting { hub: Arc::clone(self), number, woken }
    }

    /// This effect changed just now, in this process.
    pub(crate) fn wake(&self, effect_id: Uuid) {
        for waiter in self.lock().values().filter(|waiter| waiter.effect_id == effect_id) {
            // One permit is kept, so a waiter that is not polled yet hears it too.
            waiter.woken.notify_one();
        }
    }

    /// How many calls wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().len()
    }

    fn waited_for(&self) -> Looked {
        let mut by_org = Looked::new();
        for waiter in self.lock().values() {
            let (effects, approvals) = by_org.entry(waiter.org_id).or_default();
            match waiter.until {
                Until::Moves(mark) => approvals.push(mark.approval_id),
                Until::GrantEnds | Until::Decided => effects.push(waiter.effect_id),
            }
        }
        for (effects, approvals) in by_org.values_mut() {
            for ids in [effects, approvals] {
                ids.sort_unstable();
                ids.dedup();
            }
        }
        by_org
    }

    fn seen(&self, now: &Waited) {
        let waiters = self.lock();
        let over = waiters
            .values()
            .filter(|waiter| waiter.effect_id == now.effect_id && waiter.until.is_over(now));
        over.for_each(|waiter| waiter.woken.notify_one());
    }

    fn seen_mark(&self, now: &ApprovalMark) {
        for waiter in self.lock().values() {
            if let Until::Moves(mark) = waiter.until
                && mark.approval_id == now.approval_id
                && mark != *now
            {
                waiter.woken.notify_one();
            }
        }
    }

    /// Looks at every effect that is waited for until the engine stops: one query per organisation
    /// and look, however many calls wait.
    pub(crate) async fn look(self: Arc<Self>, store: Store, stop: CancellationToken) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = every.tick() => {}
            }
            several(self.waited_for(), |(org_id, (effects, approvals))| {
                self.look_at(&store, org_id, effects, approvals)
            })
            .await;
        }
    }

    async fn look_at(&self, store: &Store, org_id: Uuid, effects: Vec<Uuid>, approvals: Vec<Uuid>) {
        let Ok(_turn) = store.reading_turn().await else { return };
        for some in effects.chunks(LOOK_MAX) {
            match store.note(waited(store, org_id, some).await) {
                Ok(found) => found.iter().for_each(|now| self.seen(now)),
                Err(error) => tracing::debug!(error = %error, "a look was not answered"),
            }
        }
        for some in approvals.chunks(LOOK_MAX) {
            match store.note(approval_marks(store, org_id, some).await) {
                Ok(found) => found.iter().for_each(|now| self.seen_mark(now)),
                Err(error) => tracing::debug!(error = %error, "a look was not answered"),
            }
        }
    }
}

/// Looks at several at a time: each organisation is asked in a transaction of its own, and one that
/// is slow to answer must not keep the others waiting.
async fn several<T, F>(all: impl IntoIterator<Item = T>, look: impl Fn(T) -> F)
where
    F: Future<Output = ()>,
{
    stream::iter(all).for_each_concurrent(LOOKS_AT_ONCE, look).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_is_slow_to_answer_keeps_no_other_waiting() {
        // The first looks end only after the last one.
        let (last, ended) = tokio::sync::watch::channel(false);
        let looking = several(0..LOOKS_AT_ONCE, |n| {
            let (last, mut ended) = (&last, ended.clone());
            async move {
                if n == LOOKS_AT_ONCE - 1 {
                    last.send_replace(true);
                } else {
                    ended.wait_for(|is_over| *is_over).await.expect("the sender is there");
                }
            }
        });
        let limit = std::time::Duration::from_secs(30);
        tokio::time::timeout(limit, looking).await.expect("all of them end");
    }

    fn now(effect_id: Uuid, state: &str, is_granted: bool) -> Waited {
        Waited { effect_id, state: state.to_owned(), attempt: 1, is_granted }
    }

    #[tokio::test]
    async fn waiters_are_woken_by_what_they_wait_for_and_leave_when_dropped() {
        let hub = Arc::new(Hub::default());
        let effect = Uuid::from_u128(7);
        let granted = hub.wait(Uuid::nil(), effect, Until::GrantEnds);
        let decided = hub.wait(Uuid::nil(), effect, Until::Decided);
        assert_eq!(hub.waited_for()[&Uuid::nil()], (vec![effect], Vec::new()));
        hub.seen(&now(effect, "pending", true));
        hub.seen(&now(Uuid::nil(), "committed", false));
        for waiting in [&granted, &decided] {
            let changed = waiting.changed();
            tokio::pin!(changed);
            assert!(futures::poll!(changed).is_pending());
        }
        hub.seen(&now(effect, "committed", false));
        granted.changed().await;
        decided.changed().await;
        hub.wake(effect);
        granted.changed().await;
        drop((granted, decided));
        assert_eq!(hub.waiting(), 0);
    }

    #[tokio::test]
    async fn a_watcher_is_woken_when_its_request_stands_elsewhere() {
        let hub = Arc::new(Hub::default());
        let mark = ApprovalMark {
            approval_id: Uuid::from_u128(1),
            effect_id: Uuid::from_u128(7),
            state: undolog_core::state::ApprovalState::Pending,
            is_granted: false,
            is_voided: false,
            votes: 0,
        };
        let waiting = hub.wait(Uuid::nil(), mark.effect_id, Until::Moves(mark));
        assert_eq!(hub.waited_for()[&Uuid::nil()], (Vec::new(), vec![mark.approval_id]));
        hub.seen(&now(mark.effect_id, "approved", false));
        hub.seen_mark(&mark);
        {
            let changed = waiting.changed();
            tokio::pin!(changed);
            assert!(futures::poll!(changed).is_pending());
        }
        hub.seen_mark(&ApprovalMark { votes: 1, ..mark });
        waiting.changed().await;
    }
}
