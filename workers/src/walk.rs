//! Walks one rollback for one slice: claim, then call and settle until there is nothing to do now.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use undolog_core::limits::{JITTER_PERCENT_MAX, ROLLBACK_LEASE_MS};
use undolog_store::{
    StepError, Store, crash_point,
    walk::{self, Advance, Claim, Next, Place, Record, Report},
};
use uuid::Uuid;

use crate::{call, fair, handler::Shared, lane::Seat};

/// A rollback whose step failed with something that is no fault of the database is looked at again
/// after a minute: soon enough for a fixed fault, too late for a hot loop.
const POSTPONED_MS: i64 = 60_000;
/// The first and the longest pause between two tries to write a report.
const WRITE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A suspect whose lane is full is looked at again after so long, and up to twice that.
const LANE_FULL_MS: i64 = 5_000;

/// Others that one ticket serves first, at most: in the end its own has its turn.
const OTHERS_MAX: u32 = 8;
/// How long a handler goes on with what else is due before it takes a new ticket.
const LINGER: Duration = Duration::from_secs(10);

/// Walks a ticket's rollback. When its organisation has its share of this process, others that wait
/// come first; afterwards the handler goes on with whatever is due, since the queue hands out its
/// tickets more slowly than they can be worked on.
pub(crate) async fn run(shared: &Arc<Shared>, org_id: Uuid, rollback_id: Uuid) {
    let started = Instant::now();
    let (fair, store) = (&shared.fair, &shared.store);
    let is_over = || shared.stop.is_cancelled() || started.elapsed() >= LINGER;
    for _ in 0..OTHERS_MAX {
        if shared.stop.is_cancelled() {
            return;
        }
        let Some((other_id, rollback_id)) = fair.somebody_else(store, org_id).await else { break };
        metrics::counter!("undolog_fair_turns_total").increment(1);
        one(shared, other_id, rollback_id).await;
    }
    // No place: this process works on as many as it may. One that nothing is done for yet has a
    // place all the same, and this handler looks for it meanwhile.
    while !one(shared, org_id, rollback_id).await {
        if is_over() {
            // The reaper issues the ticket again.
            return;
        }
        match fair.newcomer(store).await {
            Some((org_id, rollback_id)) => {
                one(shared, org_id, rollback_id).await;
            }
            None => tokio::time::sleep(fair::LOOK_EVERY).await,
        }
    }
    while !is_over() {
        let Some((org_id, rollback_id)) = fair.anybody(store).await else { break };
        if !one(shared, org_id, rollback_id).await {
            break;
        }
    }
}

/// Walks a rollback if it is due and nobody holds it. `false`: there is no place for it now.
async fn one(shared: &Arc<Shared>, org_id: Uuid, rollback_id: Uuid) -> bool {
    let Some(turn) = shared.fair.turn(org_id) else { return false };
    if shared.stop.is_cancelled() {
        return true;
    }
    let claim = match walk::claim(&shared.store, org_id, rollback_id, &shared.name).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return true,
        Err(error) => {
            tracing::warn!(org.id = %org_id, rollback.id = %rollback_id, %error, "claim failed");
            return true;
        }
    };
    let due_age = Duration::from_millis(u64::try_from(claim.due_age_ms).unwrap_or(0));
    metrics::histogram!("undolog_rollback_due_age_seconds").record(due_age.as_secs_f64());
    let renewal = Renewal::start(shared.queue_store.clone(), claim.clone());
    let mut slice = Slice {
        shared: Arc::clone(shared),
        claim,
        started: Instant::now(),
        calls: 0,
        _renewal: renewal,
    };
    if slice.walk().await == After::OwnProcess {
        slice.leave_for_the_lane().await;
    }
    drop(turn);
    true
}

/// How a slice ended.
#[derive(Debug, PartialEq, Eq)]
enum After {
    /// The claim is given back or lost.
    Over,
    /// The next call needs a process of its own; the claim is held.
    OwnProcess,
}

struct Slice {
    shared: Arc<Shared>,
    claim: Claim,
    started: Instant,
    calls: u32,
    _renewal: Renewal,
}

impl Slice {
    async fn walk(&mut self) -> After {
        let mut report = None;
        loop {
            let step = self.step(report.take(), Place::Worker, self.may_go_on());
            match self.advance(step).await {
                Some(Next::Call(prepared)) => {
                    crash_point!("worker.after_intent");
                    let made = call::make(&self.shared, &self.claim, *prepared, Place::Worker);
                    report = Some(made.await);
                    crash_point!("worker.after_call");
                    self.calls += 1;
                }
                Some(Next::Again) => {}
                Some(Next::NeedsOwnProcess) => return After::OwnProcess,
                Some(next) => return self.over(&next),
                None => return After::Over,
            }
        }
    }

    /// Gives the handler back: what waits in the lane is in nobody's way.
    async fn leave_for_the_lane(self) {
        match self.shared.lane.enter(self.claim.org_id) {
            Some(seat) => {
                let tasks = self.shared.tasks.clone();
                tasks.spawn(self.in_lane(seat));
            }
            None => {
                let spread = i64::try_from(random_below(LANE_FULL_MS.unsigned_abs())).unwrap_or(0);
                self.postpone(LANE_FULL_MS + spread).await;
            }
        }
    }

    /// Makes one call in a process of its own, then hands the rest of the walk over. How long it
    /// has waited for that is nothing that a slice is measured by.
    async fn in_lane(mut self, mut seat: Seat) {
        let shared = Arc::clone(&self.shared);
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => return self.postpone(0).await,
            () = seat.turn() => {}
        }
        let mut report = None;
        loop {
            let goes_on = report.is_none() && !shared.stop.is_cancelled();
            let step = self.step(report.take(), Place::OwnProcess, goes_on);
            match self.advance(step).await {
                Some(Next::Call(prepared)) => {
                    crash_point!("worker.after_intent");
                    let made = call::make(&shared, &self.claim, *prepared, Place::OwnProcess);
                    report = Some(made.await);
                    crash_point!("worker.after_call");
                    self.calls += 1;
                }
                Some(Next::Again) => {}
                Some(next) => {
                    self.over(&next);
                    return;
                }
                None => return,
            }
        }
    }

    fn over(&self, next: &Next) -> After {
        if matches!(next, Next::Lost) {
            tracing::warn!(
                session.id = %self.claim.session_id,
                rollback.id = %self.claim.rollback_id,
                fence = self.claim.fence,
                "somebody else holds the rollback now"
            );
            metrics::counter!("undolog_claims_lost_total").increment(1);
        }
        After::Over
    }

    fn may_go_on(&self) -> bool {
        let options = &self.shared.options;
        !self.shared.stop.is_cancelled()
            && self.calls < options.slice_calls
            && self.started.elapsed() < Duration::from_millis(options.slice_ms)
    }

    fn step(&self, report: Option<Report>, place: Place, may_go_on: bool) -> Advance {
        let jitter_percent = random_below(JITTER_PERCENT_MAX + 1);
        Advance { claim: self.claim.clone(), report, place, may_go_on, jitter_percent }
    }

    /// Takes one step. A report is sent until it is written: what a call came to must not be lost
    /// as long as this process lives. `None`: the walk is over for this process.
    async fn advance(&self, step: Advance) -> Option<Next> {
        let mut pause = WRITE_BACKOFF.0;
        loop {
            match self.shared.store.run(step.clone()).await {
                Ok(next) => {
                    crash_point!("worker.after_settle_commit");
                    return Some(next);
                }
                Err(error @ (StepError::Db(_) | StepError::Interrupted)) => {
                    tracing::warn!(rollback.id = %self.claim.rollback_id, %error, "step failed");
                    if step.report.is_none() || self.shared.give_up.is_cancelled() {
                        self.postpone(1_000).await;
                        return None;
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(WRITE_BACKOFF.1);
                }
                Err(error) => {
                    self.stuck(&step, &error).await;
                    return None;
                }
            }
        }
    }

    /// The step meets something that this program cannot handle: a fault of ours, said loudly. The
    /// report is kept all the same.
    async fn stuck(&self, step: &Advance, error: &StepError) {
        tracing::error!(
            org.id = %self.claim.org_id,
            session.id = %self.claim.session_id,
            rollback.id = %self.claim.rollback_id,
            %error,
            "the walk cannot go on"
        );
        metrics::counter!("undolog_walks_stuck_total").increment(1);
        if let Some(report) = &step.report {
            let record = Record { claim: self.claim.clone(), report: report.clone() };
            if let Err(error) = self.shared.store.run(record).await {
                tracing::error!(undo.id = %report.undo_id, %error, "a report was not written");
            }
        }
        self.postpone(POSTPONED_MS).await;
    }

    async fn postpone(&self, wait_ms: i64) {
        if let Err(error) = walk::postpone(&self.shared.store, &self.claim, wait_ms).await {
            // The lease ends by itself.
            tracing::debug!(rollback.id = %self.claim.rollback_id, %error, "not postponed");
        }
    }
}

/// Renews a claim until it is dropped, from a pool of its own: a busy pool must not cost the lease.
struct Renewal(JoinHandle<()>);

impl Renewal {
    fn start(store: Store, claim: Claim) -> Self {
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(ROLLBACK_LEASE_MS / 3)).await;
                match walk::renew(&store, &claim).await {
                    Ok(true) => {}
                    // The walk hears it from its next step; the call in flight cannot be unsent.
                    Ok(false) => return,
                    Err(error) => {
                        let id = claim.rollback_id;
                        tracing::warn!(rollback.id = %id, %error, "lease not renewed");
                    }
                }
            }
        }))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A random number below `bound`.
pub(crate) fn random_below(bound: u64) -> u64 {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    (high ^ low.rotate_left(32)) % bound.max(1)
}
