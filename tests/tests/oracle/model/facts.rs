//! What the oracle knows: facts that come from commands and answers.

use std::collections::{BTreeMap, BTreeSet};

use super::command::{Call, Config, Position, Tier, Tool, UndoId, Value};
use super::observed::Observed;
use super::scope::Scope;

/// One granted run of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) live: bool,
    pub(crate) token: u64,
    /// The grant ended without a report, or with "unknown".
    pub(crate) lost: bool,
    /// A failure was reported.
    pub(crate) failed: bool,
    /// Somebody said that it was not applied.
    pub(crate) not_applied: bool,
    /// An operator said so.
    pub(crate) by_operator: bool,
    /// The stored success.
    pub(crate) success: Option<Value>,
}

/// What became of the approval of an irreversible call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Decision {
    #[default]
    None,
    Pending,
    Approved,
    Spent,
    Rejected,
    TimedOut,
    Lapsed,
    Revoked,
    /// By the start of a rollback.
    Voided,
}

/// The facts about one call.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) step: i64,
    pub(crate) tool: Tool,
    pub(crate) attempts: BTreeMap<u32, Attempt>,
    /// Stored successes in the order in which they came.
    pub(crate) successes: Vec<(u32, Value)>,
    pub(crate) decision: Decision,
    /// An operator's "not applied" is contradicted and that is not settled.
    pub(crate) contradicted: bool,
    /// It was, and an operator settled it.
    pub(crate) contradiction_settled: bool,
    /// An operator closed a letter about this call.
    pub(crate) letter_closed: bool,
    /// A Heartbeat may have resumed the newest grant.
    pub(crate) resumable: bool,
}

impl Facts {
    /// An entry can come to name another attempt: of an idempotent tool, and (open point) once an
    /// earlier attempt's result stands for the call.
    pub(crate) fn shares_entry(&self) -> bool {
        self.tool.idempotent || !self.successes.is_empty()
    }

    pub(crate) fn new(step: i64, tool: Tool) -> Facts {
        Facts {
            step,
            tool,
            attempts: BTreeMap::new(),
            successes: Vec::new(),
            decision: Decision::None,
            contradicted: false,
            contradiction_settled: false,
            letter_closed: false,
            resumable: false,
        }
    }

    /// The newest granted attempt; 0 when none was granted.
    pub(crate) fn newest(&self) -> u32 {
        self.attempts.keys().next_back().copied().unwrap_or(0)
    }

    /// The attempt that a report names (0 = newest).
    pub(crate) fn named(&self, attempt: u32) -> u32 {
        if attempt == 0 { self.newest() } else { attempt }
    }

    pub(crate) fn attempt(&self, number: u32) -> Option<&Attempt> {
        self.attempts.get(&number)
    }

    /// The live grant.
    pub(crate) fn live(&self) -> Option<(u32, &Attempt)> {
        self.attempts.iter().find(|(_, a)| a.live).map(|(n, a)| (*n, a))
    }

    /// What a Replay may carry. Open point: "newest" by attempt or by arrival.
    pub(crate) fn replays(&self) -> Vec<Value> {
        let by_attempt = self.successes.iter().max_by_key(|(n, _)| *n);
        let by_arrival = self.successes.last();
        let mut values: Vec<Value> =
            by_attempt.into_iter().chain(by_arrival).map(|(_, v)| *v).collect();
        values.dedup();
        values
    }

    pub(crate) fn irreversible(&self) -> bool {
        self.tool.tier == Tier::Irreversible
    }
}

/// All facts about the session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) config: Config,
    pub(crate) calls: BTreeMap<Call, Facts>,
    pub(crate) scope: Scope,
    /// A rejection or time-out asked for the documented halt.
    pub(crate) halt_due: bool,
    pub(crate) completed: bool,
    /// Failed without a rollback.
    pub(crate) failed: bool,
    pub(crate) settled: bool,
    /// Entries that an operator resolved by hand.
    pub(crate) by_hand: BTreeSet<UndoId>,
    /// Entries that an operator skipped.
    pub(crate) skipped_by_hand: BTreeSet<UndoId>,
    /// Entries whose success was written late.
    pub(crate) late_success: BTreeSet<UndoId>,
    /// Letters that the last command must have made.
    pub(crate) letters_due: Vec<(Call, &'static str)>,
    /// Stale or late successes that must have a new entry above this position.
    pub(crate) entries_due: Vec<(Call, u32, Position)>,
    /// A letter was closed by late evidence about an irreversible effect.
    pub(crate) closed_by_evidence: bool,
    /// The last command was a partial rollback from here, and was accepted.
    pub(crate) asked: Option<Position>,
    /// The drain of the live rollback was seen to be over.
    pub(crate) drained: bool,
}

impl Model {
    pub(crate) fn facts(&self, call: Call) -> Option<&Facts> {
        self.calls.get(&call)
    }

    /// Whether another call holds the step of this one (§6 `STEP_CONFLICT`).
    pub(crate) fn step_taken(&self, call: Call, step: i64, rows: &Observed) -> bool {
        use super::observed::EffectState::FailedNotApplied;
        !self.config.steps_shared
            && self.calls.iter().any(|(other, facts)| {
                *other != call
                    && facts.step == step
                    && rows.effect(*other).is_some_and(|e| e.state != FailedNotApplied)
            })
    }
}
