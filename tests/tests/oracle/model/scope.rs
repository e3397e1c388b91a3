//! Which positions somebody asked to undo (§13.1): by positions, never by times.

use super::command::{Call, Position};
use super::observed::{EntryState, Observed};

/// Whether something was asked: certainly, or by one reading of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Ask {
    /// Nobody asked.
    #[default]
    No,
    /// One reading of the pages says so.
    May,
    /// The pages say so.
    Must,
}

/// Late evidence about one call: it asks for [e, ∞), where e is its new entry's position.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    pub(crate) call: Call,
    /// The new entry lies above this position.
    pub(crate) after: Position,
    pub(crate) ask: Ask,
}

impl Late {
    /// The position of the new entry, once it exists.
    pub(crate) fn from(&self, rows: &Observed) -> Option<Position> {
        let mine = rows.entries.iter().filter(|e| e.call == self.call && e.position > self.after);
        mine.map(|e| e.position).min()
    }
}

/// The requests that were really made and are not over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// The whole session: for good, since such a session never goes on.
    pub(crate) whole: Ask,
    /// From this position upward, while the partial rollback is live.
    pub(crate) partial: Option<Position>,
    /// Late evidence.
    pub(crate) late: Vec<Late>,
}

impl Scope {
    /// Whether a request covers this position now.
    pub(crate) fn covers(&self, position: Position, rows: &Observed) -> bool {
        self.from(rows).is_some_and(|from| from <= position)
    }

    /// The lowest position that a request covers now.
    pub(crate) fn from(&self, rows: &Observed) -> Option<Position> {
        if self.whole != Ask::No {
            return Some(Position::MIN);
        }
        let late = self.late.iter().filter_map(|l| l.from(rows));
        self.partial.into_iter().chain(late).min()
    }

    /// Whether a caller's own partial rollback is live (not only one over late entries).
    pub(crate) fn only_late(&self) -> bool {
        self.whole == Ask::No && self.partial.is_none() && !self.late.is_empty()
    }

    /// Adds a request for [from, ∞); a wider one widens.
    pub(crate) fn ask_from(&mut self, from: Position) {
        self.partial = Some(self.partial.map_or(from, |old| old.min(from)));
    }

    /// Adds late evidence.
    pub(crate) fn ask_late(&mut self, call: Call, after: Position, ask: Ask) {
        self.late.push(Late { call, after, ask });
    }

    /// No rollback is live any more: what it was asked for is over, for good.
    pub(crate) fn end(&mut self, rows: &Observed) {
        self.partial = None;
        self.late.retain(|late| {
            if late.ask != Ask::Must {
                return false;
            }
            let entry =
                late.from(rows).and_then(|at| rows.entries.iter().find(|e| e.position == at));
            !entry.is_some_and(|e| matches!(e.state, EntryState::Compensated | EntryState::Skipped))
        });
    }
}
