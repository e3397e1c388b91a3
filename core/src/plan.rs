//! The undo plan: what a rollback undoes, in which order, and what it must refuse.

use std::cmp::Reverse;

use uuid::Uuid;

use crate::state::{EffectState, Outcome, UndoState};
use crate::{Reason, Refusal, Tier};

/// How much of a session a rollback undoes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything; the session ends.
    Whole,
    /// Positions at or above this one: a savepoint.
    FromPosition(u32),
    /// Every step above this one.
    ToStep(u32),
}

/// One undo entry with its effect, or one effect that has no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The effect.
    pub effect_id: Uuid,
    /// The undo entry; `None` for an irreversible effect.
    pub undo_id: Option<Uuid>,
    /// The entry's position, or an irreversible effect's; `None` before its grant.
    pub position: Option<u32>,
    /// The position at which an irreversible effect was asked for.
    pub asked_position: Option<u32>,
    /// The effect's step.
    pub step_index: u32,
    /// The effect's tier.
    pub tier: Tier,
    /// The effect's state.
    pub state: EffectState,
    /// What is known of a failed effect.
    pub outcome: Option<Outcome>,
    /// The entry's state.
    pub entry: Option<UndoState>,
    /// The effect holds a live grant.
    pub is_granted: bool,
}

impl Item {
    /// An approval that a rollback takes away: pending, or given and not used.
    const fn is_voidable(&self) -> bool {
        match self.state {
            EffectState::Pending => true,
            EffectState::Approved => !self.is_granted,
            _ => false,
        }
    }

    /// The position that puts the item inside or outside of a scope.
    const fn key(&self) -> Option<u32> {
        if self.is_voidable() && self.asked_position.is_some() {
            self.asked_position
        } else {
            self.position
        }
    }

    /// Whether a rollback would change anything about it.
    fn matters(&self) -> bool {
        match self.state {
            EffectState::Rejected | EffectState::Replayed | EffectState::Compensated => false,
            EffectState::Failed => self.outcome != Some(Outcome::NotApplied),
            _ => true,
        }
    }
}

/// What a rollback does, decided at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The lowest position in scope.
    pub from_position: u32,
    /// The entries to undo, in the order of the walk: strictly descending positions.
    pub walk: Vec<Item>,
    /// Committed irreversible effects in scope, descending.
    pub residue: Vec<Item>,
    /// Irreversible effects in scope of which nobody knows whether they happened, descending.
    pub undecided: Vec<Item>,
    /// Effects in scope whose approval is taken away.
    pub voided: Vec<Item>,
    /// Live grants in scope that the drain waits for, of either tier.
    pub waits_for: Vec<Item>,
    /// The first step index that no call of the session has used.
    pub next_step_index: u32,
}

/// Plans a rollback. `next_position` is the session's counter: the position that the next effect
/// will take.
///
/// # Errors
/// `STEP_ORDER` when a step to keep lies above one to undo, and `RESIDUE` when a partial rollback
/// meets an irreversible effect that is committed, or may still commit, and the caller did not
/// allow that.
pub fn plan(
    items: &[Item],
    scope: Scope,
    allow_residue: bool,
    next_position: u32,
) -> Result<Plan, Refusal> {
    let from_position = first_position(items, scope, next_position)?;
    let mut inside: Vec<Item> = items
        .iter()
        .filter(|item| item.key().is_some_and(|key| key >= from_position))
        .copied()
        .collect();
    inside.sort_by_key(|item| Reverse(item.key()));
    let pick = |test: &dyn Fn(&Item) -> bool| inside.iter().filter(|i| test(i)).copied().collect();
    let irreversible = |item: &Item| item.tier == Tier::Irreversible;
    let plan = Plan {
        from_position,
        walk: pick(&|i| i.undo_id.is_some() && i.entry.is_some_and(UndoState::is_open)),
        residue: pick(&|i| irreversible(i) && i.state == EffectState::Committed),
        undecided: pick(&|i| {
            irreversible(i)
                && (i.state == EffectState::Unknown
                    || (i.state == EffectState::Failed && i.outcome != Some(Outcome::NotApplied)))
        }),
        voided: pick(&|i| irreversible(i) && i.is_voidable()),
        waits_for: pick(&|i| i.is_granted),
        next_step_index: next_step_index(items),
    };
    // A call that runs now can commit while the rollback waits for it.
    let running = plan.waits_for.iter().filter(|item| irreversible(item));
    let steps: Vec<_> =
        plan.residue.iter().chain(running).map(|item| item.step_index.to_string()).collect();
    if scope != Scope::Whole && !allow_residue && !steps.is_empty() {
        return Err(Refusal::new(Reason::Residue).with("step_indexes", steps.join(",")));
    }
    Ok(plan)
}

fn first_position(items: &[Item], scope: Scope, next_position: u32) -> Result<u32, Refusal> {
    let keep = match scope {
        Scope::Whole => return Ok(0),
        Scope::FromPosition(position) => return Ok(position),
        Scope::ToStep(step) => step,
    };
    let above = items.iter().filter(|item| item.step_index > keep).filter_map(Item::key).min();
    let Some(from) = above else {
        return Ok(next_position);
    };
    let misplaced = items.iter().find(|item| {
        item.step_index <= keep && item.matters() && item.key().is_some_and(|key| key >= from)
    });
    match misplaced {
        None => Ok(from),
        Some(item) => Err(Refusal::new(Reason::StepOrder)
            .with("effect_id", item.effect_id)
            .with("step_index", item.step_index)),
    }
}

/// The first step index that no call has used; sessions count from 1, as the SDK does.
#[must_use]
pub fn next_step_index(items: &[Item]) -> u32 {
    items.iter().map(|item| item.step_index.saturating_add(1)).max().unwrap_or(1).max(1)
}
