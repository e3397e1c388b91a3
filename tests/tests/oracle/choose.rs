//! Draws the next command by what is possible now, so that most commands do something.

use proptest::prelude::{Rng, RngCore};
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::{
    act::{Act, Plan, Sequence, TOOLS, Verb},
    model::{
        Config, EffectRow, EffectState, Observed, OnDeadLetter, OnRejection, OnToolFailure,
        RollbackState, SessionState,
    },
    session::Session,
};

/// The source of one sequence.
pub(crate) struct Source(TestRng);

impl Source {
    /// Every number of every seed has a sequence of its own.
    pub(crate) fn new(seed: u64, number: u64) -> Source {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        Source(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.random_range(0..limit)
    }

    fn one_in(&mut self, count: u32) -> bool {
        self.0.next_u32().is_multiple_of(count)
    }

    pub(crate) fn sequence(&mut self) -> (Sequence, usize) {
        let count = 1 + self.below(6);
        let auto = self.one_in(4);
        let tools = (0..count)
            .map(|_| match self.below(10) {
                0..=3 => 0,
                4 => 1,
                5 => 2,
                6 => 3,
                _ if auto => 5,
                _ => 4,
            })
            .collect();
        let steps = (1..=count)
            .map(|step| if self.one_in(12) { 1 } else { u32::try_from(step).unwrap_or(1) })
            .collect();
        let config = Config {
            on_tool_failure: match self.one_in(3) {
                true => OnToolFailure::Rollback,
                false => OnToolFailure::Continue,
            },
            on_dead_letter: match self.one_in(4) {
                true => OnDeadLetter::Continue,
                false => OnDeadLetter::Halt,
            },
            on_rejection: match self.one_in(3) {
                true => OnRejection::Rollback,
                false => OnRejection::Halt,
            },
            auto_approve: auto,
            steps_shared: false,
        };
        debug_assert!(TOOLS.len() == 6);
        let plan = Plan { tools, steps, config };
        (Sequence { plan, acts: Vec::new() }, 5 + self.below(36))
    }

    /// The next command.
    pub(crate) fn next(&mut self, session: &Session<'_>) -> Act {
        let mut options = Options::default();
        options.session(session);
        options.calls(session);
        options.walk(session);
        options.letters(&session.rows.observed);
        options.clock(self);
        let total: u32 = options.0.iter().map(|(weight, _)| weight).sum();
        let mut left = self.0.random_range(0..total);
        for (weight, act) in options.0 {
            if left < weight {
                return act;
            }
            left -= weight;
        }
        unreachable!("the weights add up")
    }
}

/// What may be done, each with its weight.
#[derive(Default)]
struct Options(Vec<(u32, Act)>);

impl Options {
    fn add(&mut self, weight: u32, verb: Verb, args: &[i64]) {
        let mut all = [0; 3];
        all[..args.len()].copy_from_slice(args);
        self.0.push((weight, Act::new(verb, all)));
    }

    fn session(&mut self, session: &Session<'_>) {
        let rows = &session.rows.observed;
        let live = rows.session.is_live();
        self.add(if live { 6 } else { 1 }, Verb::Savepoint, &[]);
        for at in 0..session.savepoints.len() {
            let at = i64::try_from(at).unwrap_or_default();
            self.add(if live { 4 } else { 1 }, Verb::RollbackTo, &[at]);
            self.add(1, Verb::RollbackTo, &[at, 1]);
        }
        for step in 0..=2 {
            self.add(1, Verb::RollbackToStep, &[step, step % 2]);
        }
        self.add(2, Verb::RollbackWhole, &[]);
        let idle = !rows.effects.iter().any(|e| e.live_grant || e.state == EffectState::Pending);
        self.add(if live && idle { 3 } else { 1 }, Verb::Complete, &[]);
        self.add(1, Verb::Complete, &[1]);
        self.add(1, Verb::FailSession, &[0]);
        self.add(1, Verb::FailSession, &[1]);
        self.add(1, Verb::SessionLeaseLost, &[]);
        if rows.session == SessionState::Halted {
            self.add(1, Verb::Settle, &[]);
        }
    }

    fn calls(&mut self, session: &Session<'_>) {
        let rows = &session.rows.observed;
        for call in session.plan.calls() {
            let number = i64::from(call);
            match rows.effect(call) {
                None => {
                    let weight = if rows.session.is_live() { 10 } else { 1 };
                    self.add(weight, Verb::Intercept, &[number, 0]);
                    self.add(weight / 2, Verb::Intercept, &[number, 2]);
                }
                Some(effect) => self.known(number, effect, rows.session.is_live()),
            }
        }
    }

    fn known(&mut self, call: i64, effect: &EffectRow, live: bool) {
        use EffectState::*;
        self.add(1, Verb::Intercept, &[call, 0]);
        self.add(1, Verb::Intercept, &[call, 1]);
        self.add(1, Verb::Heartbeat, &[call]);
        // A success of an earlier attempt is known, and the call's own state does not say so.
        let stored = !effect.results.is_empty() && effect.state != Committed;
        if stored && live {
            self.add(12, Verb::Intercept, &[call, 2]);
        }
        for attempt in 1..effect.attempt {
            self.add(if stored { 2 } else { 10 }, Verb::Commit, &[call, attempt.into()]);
            self.add(1, Verb::Commit, &[call, attempt.into(), 1]);
            self.add(1, Verb::Fail, &[call, attempt.into(), 1]);
        }
        match effect.state {
            _ if effect.live_grant => {
                self.add(14, Verb::Commit, &[call]);
                self.add(if stored { 14 } else { 5 }, Verb::Fail, &[call, 0, 0]);
                self.add(3, Verb::Fail, &[call, 0, 1]);
                self.add(3, Verb::Fail, &[call, 0, 2]);
                self.add(5, Verb::GrantLeaseExpires, &[call]);
            }
            Pending => {
                self.add(10, Verb::Approve, &[call]);
                self.add(1, Verb::Reject, &[call]);
                self.add(2, Verb::ApprovalTimeout, &[call]);
            }
            Approved => {
                self.add(12, Verb::Intercept, &[call, 2]);
                self.add(1, Verb::Revoke, &[call]);
                self.add(1, Verb::ApprovalLapses, &[call]);
                self.add(1, Verb::Approve, &[call]);
            }
            Unknown | FailedMaybeApplied => {
                self.add(5, Verb::Commit, &[call]);
                self.add(2, Verb::Fail, &[call, 0, 0]);
                self.add(2, Verb::ResolveUnknown, &[call, 0]);
                self.add(2, Verb::ResolveUnknown, &[call, 1]);
                self.add(if live { 3 } else { 1 }, Verb::Intercept, &[call, 0]);
            }
            FailedNotApplied => {
                self.add(if live { 12 } else { 1 }, Verb::Intercept, &[call, 0]);
                self.add(4, Verb::Commit, &[call]);
            }
            Committed => {
                self.add(1, Verb::Commit, &[call]);
                self.add(1, Verb::Commit, &[call, 0, 1]);
                self.add(1, Verb::Fail, &[call, 0, 1]);
            }
            Compensating | Compensated | CompensationFailed => {
                self.add(4, Verb::Commit, &[call]);
                self.add(1, Verb::Fail, &[call, 0, 0]);
                self.add(1, Verb::ResolveUnknown, &[call, 1]);
            }
            Rejected | Executing => self.add(1, Verb::Approve, &[call]),
        }
    }

    fn walk(&mut self, session: &Session<'_>) {
        if session.holder.is_some() {
            self.add(30, Verb::Step, &[0]);
            self.add(4, Verb::Step, &[1]);
            self.add(4, Verb::Step, &[2]);
            self.add(3, Verb::KillBeforeCall, &[]);
            self.add(5, Verb::KillAfterCall, &[]);
        } else if let Some(live) = session.rows.observed.live_rollback() {
            let runs = live.state != RollbackState::Halted;
            self.add(if runs { 20 } else { 1 }, Verb::Claim, &[]);
            self.add(if runs { 10 } else { 1 }, Verb::TimePasses, &[]);
        }
        for at in 0..session.orphans.len() {
            self.add(5, Verb::LateReport, &[i64::try_from(at).unwrap_or_default()]);
        }
    }

    fn letters(&mut self, rows: &Observed) {
        for at in 0..rows.letters.len() {
            let at = i64::try_from(at).unwrap_or_default();
            self.add(4, Verb::Retry, &[at]);
            self.add(1, Verb::Retry, &[at, 1]);
            self.add(2, Verb::Skip, &[at]);
            self.add(2, Verb::Resolve, &[at]);
        }
    }

    fn clock(&mut self, source: &mut Source) {
        let minutes = i64::try_from(1 + source.below(90)).unwrap_or(1);
        self.add(1, Verb::Clock, &[minutes]);
        self.add(1, Verb::Clock, &[-minutes]);
    }
}
