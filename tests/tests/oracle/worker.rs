//! The workers: one holds the rollback at a time, takes single steps, and may die between any two.

use chrono::Duration;
use undolog_core::retry::CallOutcome;
use undolog_store::{
    StepError,
    walk::{self, Advance, Claim, Next, Outcome, Place, PreparedCall, Record, Report},
};

use crate::{
    act::Verb,
    model::{Answer, Command, Outcome as Told, WorkerStep},
    rows::Sent,
    session::Session,
    verbs,
};

/// A little longer than a worker's claim.
const LEASE: Duration = Duration::seconds(31);

/// The worker that holds the rollback.
pub(crate) struct Holder {
    claim: Claim,
    place: Place,
    /// What it has to report.
    report: Option<Report>,
}

/// A report whose worker was given up.
pub(crate) struct Orphan {
    claim: Claim,
    report: Report,
}

impl Session<'_> {
    pub(crate) async fn work(&mut self, verb: Verb, argument: i64) -> verbs::Told {
        let told = match verb {
            Verb::Claim => self.claim().await?,
            Verb::Step => {
                let (outcome, told) = match argument {
                    0 => (CallOutcome::Done, Told::Done),
                    1 => (CallOutcome::Retry, Told::Retry),
                    _ => (CallOutcome::Permanent, Told::Permanent),
                };
                self.advance(Some(outcome)).await?;
                WorkerStep::Call(told)
            }
            Verb::KillBeforeCall => {
                self.advance(None).await?;
                self.give_up();
                WorkerStep::KillBeforeCall
            }
            Verb::KillAfterCall => {
                self.holder.as_ref()?;
                self.give_up();
                WorkerStep::KillAfterCall
            }
            _ => return self.late_report(argument).await,
        };
        let answer = match self.trouble {
            // The walk's own faults are heard by nobody; they are the oracle's to hear.
            Some(_) => Answer::refused("INTERNAL"),
            None => Answer::Ok,
        };
        Some((Command::Worker(told), answer))
    }

    async fn claim(&mut self) -> Option<WorkerStep> {
        let rollback_id = self.rows.live_rollback?;
        if self.holder.is_some() {
            return None;
        }
        self.workers_made += 1;
        let worker = format!("worker-{}", self.workers_made);
        match walk::claim(&self.lane.worker, self.org, rollback_id, &worker).await {
            Ok(claim) => {
                self.holder =
                    claim.map(|claim| Holder { claim, place: Place::Worker, report: None });
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
        Some(WorkerStep::Claim)
    }

    /// One step of the holder: it reports its last call and makes the next, which ends like this;
    /// `None`: it is prepared and not made.
    async fn advance(&mut self, outcome: Option<CallOutcome>) -> Option<()> {
        let mut holder = self.holder.take()?;
        match self.next(&mut holder).await {
            Ok(Next::Call(call)) => {
                if let Some(outcome) = outcome {
                    let applied = outcome == CallOutcome::Done;
                    self.sent.push(Sent { undo_id: call.undo_id, step: self.step, applied });
                    holder.report = Some(report(&call, outcome));
                }
                holder.place = Place::Worker;
                self.holder = Some(holder);
            }
            Ok(Next::NeedsOwnProcess) => {
                holder.place = Place::OwnProcess;
                self.holder = Some(holder);
            }
            Ok(Next::Again) => self.holder = Some(holder),
            Ok(Next::Waiting | Next::HandedOver | Next::Done | Next::Lost) => {}
            Err(error) => self.trouble = Some(error.to_string()),
        }
        Some(())
    }

    async fn next(&self, holder: &mut Holder) -> Result<Next, StepError> {
        let step = Advance {
            claim: holder.claim.clone(),
            report: holder.report.take(),
            place: holder.place,
            may_go_on: true,
            jitter_percent: 0,
        };
        self.lane.worker.run(step).await
    }

    /// The holder is gone: its lease ends by itself, and its report may come later.
    fn give_up(&mut self) {
        if let Some(Holder { claim, report: Some(report), .. }) = self.holder.take() {
            self.orphans.push(Orphan { claim, report });
        }
        self.lane.step_clock(LEASE);
    }

    async fn late_report(&mut self, number: i64) -> verbs::Told {
        let at = usize::try_from(number).ok().filter(|at| *at < self.orphans.len())?;
        let Orphan { claim, report } = self.orphans.remove(at);
        let (undo_id, outcome) = (report.undo_id, report.outcome);
        let recorded = self.lane.worker.run(Record { claim, report }).await;
        let answer = self.heard(recorded, |()| Answer::Ok);
        if outcome != Outcome::Ended(CallOutcome::Done) {
            return Some((Command::Worker(WorkerStep::Any), answer));
        }
        Some((Command::LateSuccess { undo_id: self.ids.number(undo_id) }, answer))
    }
}

fn report(call: &PreparedCall, outcome: CallOutcome) -> Report {
    let failed = outcome != CallOutcome::Done;
    Report {
        undo_attempt_id: call.undo_attempt_id,
        undo_id: call.undo_id,
        outcome: Outcome::Ended(outcome),
        status: Some(if failed { 500 } else { 200 }),
        error: failed.then(|| "it broke".to_owned()),
        response: Vec::new(),
        response_truncated: false,
        retry_after_ms: None,
        may_have_run: !failed,
    }
}
