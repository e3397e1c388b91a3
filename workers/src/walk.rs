//! Walks one rollback for one slice: claim, then call and settle until there is nothing to do now.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use undolog_core::limits::{JITTER_PERCENT_MAX, ROLLBACK_LEASE_MS};
use undolog_store::{
    StepError, Store, crash_point,
    walk::{self, Advance, Claim, Next, Record, Report},
};
use uuid::Uuid;

use crate::{call, gate::Pass, handler::Shared};

/// A rollback whose step failed with something that is no fault of the database is looked at again
/// after a minute: soon enough for a fixed fault, too late for a hot loop.
const POSTPONED_MS: i64 = 60_000;
/// The first and the longest pause between two tries to write a report.
const WRITE_BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

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
    for _ in 0..OTHERS_MAX {
        if shared.stop.is_cancelled() {
            return;
        }
        let Some((other_id, rollback_id)) = fair.somebody_else(store, org_id).await else { break };
        metrics::counter!("undolog_fair_turns_total").increment(1);
        one(shared, other_id, rollback_id).await;
    }
    one(shared, org_id, rollback_id).await;
    while !shared.stop.is_cancelled() && started.elapsed() < LINGER {
        let Some((org_id, rollback_id)) = fair.anybody(store).await else { break };
        one(shared, org_id, rollback_id).await;
    }
}

/// Walks a rollback if it is due and nobody holds it.
async fn one(shared: &Arc<Shared>, org_id: Uuid, rollback_id: Uuid) {
    let _turn = shared.fair.turn(org_id);
    // Entered before the claim, so that nobody holds a rollback while waiting here.
    let pass = shared.gate.shared().await;
    if shared.stop.is_cancelled() {
        return;
    }
    let claim = match walk::claim(&shared.store, org_id, rollback_id, &shared.name).await {
        Ok(Some(claim)) => claim,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(org.id = %org_id, rollback.id = %rollback_id, %error, "claim failed");
            return;
        }
    };
    let due_age = Duration::from_millis(u64::try_from(claim.due_age_ms).unwrap_or(0));
    metrics::histogram!("undolog_rollback_due_age_seconds").record(due_age.as_secs_f64());
    let renewal = Renewal::start(shared.queue_store.clone(), claim.clone());
    Slice { shared, claim: &claim, started: Instant::now(), calls: 0 }.walk(pass).await;
    drop(renewal);
}

struct Slice<'a> {
    shared: &'a Arc<Shared>,
    claim: &'a Claim,
    started: Instant,
    calls: u32,
}

impl Slice<'_> {
    async fn walk(&mut self, mut pass: Pass) {
        let mut report = None;
        loop {
            let Some(next) = self.advance(report.take(), &pass).await else { return };
            match next {
                Next::Call(prepared) => {
                    crash_point!("worker.after_intent");
                    let shared = self.shared;
                    let give_up = &shared.give_up;
                    report = Some(call::make(&shared.egress, self.claim, *prepared, give_up).await);
                    crash_point!("worker.after_call");
                    self.calls += 1;
                    if pass.is_alone() {
                        drop(pass);
                        pass = shared.gate.shared().await;
                    }
                }
                Next::NeedsAlone => {
                    drop(pass);
                    pass = self.shared.gate.alone().await;
                }
                Next::Again => {}
                Next::Waiting | Next::HandedOver | Next::Done => return,
                Next::Lost => {
                    tracing::warn!(
                        session.id = %self.claim.session_id,
                        rollback.id = %self.claim.rollback_id,
                        fence = self.claim.fence,
                        "somebody else holds the rollback now"
                    );
                    metrics::counter!("undolog_claims_lost_total").increment(1);
                    return;
                }
            }
        }
    }

    fn may_go_on(&self) -> bool {
        let options = &self.shared.options;
        !self.shared.stop.is_cancelled()
            && self.calls < options.slice_calls
            && self.started.elapsed() < Duration::from_millis(options.slice_ms)
    }

    /// Takes one step. A report is sent until it is written: what a call came to must not be lost
    /// as long as this process lives. `None`: the walk is over for this process.
    async fn advance(&self, report: Option<Report>, pass: &Pass) -> Option<Next> {
        let step = Advance {
            claim: self.claim.clone(),
            report,
            company: pass.company(),
            may_go_on: self.may_go_on(),
            jitter_percent: random_below(JITTER_PERCENT_MAX + 1),
        };
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
        if let Err(error) = walk::postpone(&self.shared.store, self.claim, wait_ms).await {
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
