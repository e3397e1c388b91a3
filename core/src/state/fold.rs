//! Folds a session's events into the states that its rows must have.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::{approval, dead_letter, effect, rollback, session, undo};
use crate::Tier;
use crate::names::named_enum;

named_enum! {
    /// What an event is about (`undolog_effect_events.subject`).
    pub enum Subject {
        /// The session itself.
        Session => "session",
        /// One effect.
        Effect => "effect",
        /// One undo entry.
        Undo => "undo",
        /// One approval request.
        Approval => "approval",
        /// One rollback.
        Rollback => "rollback",
        /// One dead letter.
        DeadLetter => "dead_letter",
    }
}

/// One event as it is stored, in the order of the session's sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step<'a> {
    /// The session's gapless sequence, from 1.
    pub seq: u64,
    /// What it is about.
    pub subject: Subject,
    /// The subject's id as text.
    pub id: &'a str,
    /// The event's kind.
    pub kind: &'a str,
    /// The state before, `None` for a new subject.
    pub from: Option<&'a str>,
    /// The state after.
    pub to: &'a str,
}

/// The final state of every subject, by kind and id.
pub type Fold = BTreeMap<(Subject, String), String>;

/// Why a history is no history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldError {
    /// The sequence is not 1, 2, 3, …
    #[error("event {found} follows where {expected} was expected")]
    Gap {
        /// The sequence number that was due.
        expected: u64,
        /// The one that came.
        found: u64,
    },
    /// An event starts from another state than the one that the events before it gave.
    #[error("event {seq} of {subject} {id} starts from {from:?}, but it was {was:?}")]
    Discontinuous {
        /// The event.
        seq: u64,
        /// Its subject.
        subject: Subject,
        /// The subject's id.
        id: String,
        /// The state that the event names.
        from: Option<String>,
        /// The state that the fold had.
        was: Option<String>,
    },
    /// A kind or a state that does not exist.
    #[error("event {seq}: {text:?} is no name of a {subject}")]
    UnknownName {
        /// The event.
        seq: u64,
        /// Its subject.
        subject: Subject,
        /// The text.
        text: String,
    },
    /// A move that the table does not have.
    #[error("event {seq}: {kind} takes no {subject} from {from:?} to {to}")]
    Illegal {
        /// The event.
        seq: u64,
        /// Its subject.
        subject: Subject,
        /// The event's kind.
        kind: String,
        /// The state before.
        from: Option<String>,
        /// The state after.
        to: String,
    },
}

/// Folds events, in order, and checks that each one is a legal step from the state before it.
///
/// # Errors
/// A gap in the sequence, a step that does not start where the last one ended, an unknown name, or
/// a move that the tables do not have.
pub fn fold<'a>(steps: impl IntoIterator<Item = Step<'a>>) -> Result<Fold, FoldError> {
    let mut states = Fold::new();
    for (expected, step) in (1u64..).zip(steps) {
        if step.seq != expected {
            return Err(FoldError::Gap { expected, found: step.seq });
        }
        let key = (step.subject, step.id.to_owned());
        let was = states.get(&key).map(String::as_str);
        if was != step.from {
            return Err(FoldError::Discontinuous {
                seq: step.seq,
                subject: step.subject,
                id: step.id.to_owned(),
                from: step.from.map(str::to_owned),
                was: was.map(str::to_owned),
            });
        }
        check(&step)?;
        states.insert(key, step.to.to_owned());
    }
    Ok(states)
}

fn check(step: &Step<'_>) -> Result<(), FoldError> {
    let reached: Vec<&'static str> = match step.subject {
        Subject::Session => targets(step, |f, e| {
            session::transition(f, e).into_iter().map(|s| s.as_str()).collect()
        }),
        // The row's tier is not part of an event: a step is legal when some tier allows it.
        Subject::Effect => targets(step, |f, e| {
            let all = [Tier::Compensable, Tier::Irreversible];
            all.into_iter()
                .filter_map(|t| effect::transition(f, e, t))
                .map(|s| s.as_str())
                .collect()
        }),
        Subject::Undo => {
            targets(step, |f, e| undo::transition(f, e).into_iter().map(|s| s.as_str()).collect())
        }
        Subject::Approval => targets(step, |f, e| {
            approval::transition(f, e).into_iter().map(|s| s.as_str()).collect()
        }),
        Subject::Rollback => targets(step, |f, e| {
            rollback::transition(f, e).into_iter().map(|s| s.as_str()).collect()
        }),
        Subject::DeadLetter => targets(step, |f, e| {
            dead_letter::transition(f, e).into_iter().map(|s| s.as_str()).collect()
        }),
    }?;
    if reached.contains(&step.to) {
        return Ok(());
    }
    Err(FoldError::Illegal {
        seq: step.seq,
        subject: step.subject,
        kind: step.kind.to_owned(),
        from: step.from.map(str::to_owned),
        to: step.to.to_owned(),
    })
}

fn targets<S: FromStr, E: FromStr>(
    step: &Step<'_>,
    table: impl Fn(Option<S>, E) -> Vec<&'static str>,
) -> Result<Vec<&'static str>, FoldError> {
    let unknown = |text: &str| FoldError::UnknownName {
        seq: step.seq,
        subject: step.subject,
        text: text.to_owned(),
    };
    let event = step.kind.parse::<E>().map_err(|_| unknown(step.kind))?;
    let from = match step.from {
        None => None,
        Some(text) => Some(text.parse::<S>().map_err(|_| unknown(text))?),
    };
    Ok(table(from, event))
}
