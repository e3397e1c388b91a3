//! The undo plan: order, scope, residue and refusals.

use proptest::prelude::*;
use undolog_core::plan::{Item, Plan, Scope, next_step_index, plan};
use undolog_core::state::{EffectState, Outcome, UndoState};
use undolog_core::{Reason, Tier};
use uuid::Uuid;

fn compensable(position: u32, step_index: u32) -> Item {
    Item {
        effect_id: Uuid::from_u128(u128::from(position)),
        undo_id: Some(Uuid::from_u128(1000 + u128::from(position))),
        position: Some(position),
        asked_position: None,
        step_index,
        tier: Tier::Compensable,
        state: EffectState::Committed,
        outcome: None,
        entry: Some(UndoState::Pending),
        is_granted: false,
    }
}

fn irreversible(position: u32, step_index: u32, state: EffectState) -> Item {
    Item {
        undo_id: None,
        entry: None,
        tier: Tier::Irreversible,
        asked_position: Some(position),
        state,
        ..compensable(position, step_index)
    }
}

fn positions(items: &[Item]) -> Vec<u32> {
    items.iter().filter_map(|item| item.position).collect()
}

fn whole(items: &[Item]) -> Plan {
    plan(items, Scope::Whole, false, 100).expect("a whole rollback always proceeds")
}

#[test]
fn a_whole_rollback_walks_down_all_open_entries() {
    let mut items: Vec<Item> = (1..=5).map(|n| compensable(n, n)).collect();
    items[1].entry = Some(UndoState::Skipped);
    items[2].entry = Some(UndoState::Compensated);
    items[3].entry = Some(UndoState::Running);
    let plan = whole(&items);
    assert_eq!(positions(&plan.walk), [5, 4, 1]);
    assert_eq!((plan.from_position, plan.next_step_index), (0, 6));
}

#[test]
fn order_is_by_position_whatever_the_steps_say() {
    let items = [compensable(1, 9), compensable(2, 3), compensable(3, 5)];
    assert_eq!(positions(&whole(&items).walk), [3, 2, 1]);
}

#[test]
fn an_effect_with_a_new_entry_is_undone_by_that_one() {
    let skipped = Item { entry: Some(UndoState::Skipped), ..compensable(1, 1) };
    let again = Item { effect_id: skipped.effect_id, ..compensable(7, 1) };
    assert_eq!(positions(&whole(&[skipped, again]).walk), [7]);
}

#[test]
fn a_savepoint_undoes_what_stands_at_or_above_it() {
    let items: Vec<Item> = (1..=4).map(|n| compensable(n, n)).collect();
    let partial = plan(&items, Scope::FromPosition(3), false, 5).expect("no residue");
    assert_eq!(positions(&partial.walk), [4, 3]);
    let nothing = plan(&items, Scope::FromPosition(5), false, 5).expect("no residue");
    assert!(nothing.walk.is_empty());
}

#[test]
fn to_step_begins_at_the_first_position_above_it() {
    let items = [compensable(1, 1), compensable(2, 2), compensable(3, 4), compensable(4, 3)];
    let partial = plan(&items, Scope::ToStep(2), false, 5).expect("a clean boundary");
    assert_eq!((partial.from_position, positions(&partial.walk)), (3, vec![4, 3]));
    let last = plan(&items, Scope::ToStep(4), false, 5).expect("nothing above");
    assert_eq!((last.from_position, last.walk.len()), (5, 0));
}

#[test]
fn to_step_is_refused_when_a_step_to_keep_lies_above() {
    let items = [compensable(1, 1), compensable(2, 3), compensable(3, 2)];
    let refusal = plan(&items, Scope::ToStep(2), true, 4).expect_err("step 2 lies above step 3");
    assert_eq!(refusal.reason, Reason::StepOrder);
    let undone =
        Item { state: EffectState::Compensated, entry: Some(UndoState::Compensated), ..items[2] };
    let kept = [items[0], items[1], undone];
    assert!(plan(&kept, Scope::ToStep(2), true, 4).is_ok(), "what is undone is not in the way");
}

#[test]
fn residue_stops_a_partial_rollback_but_not_a_whole_one() {
    let items = [compensable(1, 1), irreversible(2, 2, EffectState::Committed), compensable(3, 3)];
    let refusal = plan(&items, Scope::FromPosition(2), false, 4).expect_err("residue");
    assert_eq!(refusal.reason, Reason::Residue);
    let allowed = plan(&items, Scope::FromPosition(2), true, 4).expect("allowed");
    assert_eq!((positions(&allowed.walk), positions(&allowed.residue)), (vec![3], vec![2]));
    let above = plan(&items, Scope::FromPosition(3), false, 4).expect("residue lies below");
    assert!(above.residue.is_empty());
    assert_eq!(positions(&whole(&items).residue), [2]);
}

#[test]
fn open_approvals_in_scope_are_voided_by_the_position_at_which_they_were_asked() {
    let pending = Item { position: None, ..irreversible(2, 2, EffectState::Pending) };
    let approved = Item { position: None, ..irreversible(4, 4, EffectState::Approved) };
    let items = [compensable(1, 1), pending, compensable(3, 3), approved];
    let partial = plan(&items, Scope::FromPosition(3), false, 5).expect("no residue");
    assert_eq!(partial.voided.iter().map(|i| i.step_index).collect::<Vec<_>>(), [4]);
    assert_eq!(whole(&items).voided.len(), 2);
    // Granted later than asked: its position counts, and the drain waits for it.
    let granted = Item { asked_position: Some(2), is_granted: true, ..approved };
    let granted = Item { position: Some(5), ..granted };
    let partial = plan(&[granted], Scope::FromPosition(3), true, 6).expect("residue is allowed");
    assert!(partial.voided.is_empty());
    assert_eq!(positions(&partial.waits_for), [5]);
}

#[test]
fn undecided_irreversible_effects_are_listed() {
    let maybe =
        Item { outcome: Some(Outcome::MaybeApplied), ..irreversible(1, 1, EffectState::Failed) };
    let not =
        Item { outcome: Some(Outcome::NotApplied), ..irreversible(2, 2, EffectState::Failed) };
    let unknown = irreversible(3, 3, EffectState::Unknown);
    assert_eq!(positions(&whole(&[maybe, not, unknown]).undecided), [3, 1]);
}

#[test]
fn live_grants_of_both_tiers_are_waited_for_in_scope_only() {
    let executing =
        |n| Item { state: EffectState::Executing, is_granted: true, ..compensable(n, n) };
    let approved = Item { is_granted: true, ..irreversible(3, 3, EffectState::Approved) };
    let items = [executing(1), executing(2), approved];
    let partial = plan(&items, Scope::FromPosition(2), true, 4).expect("residue is allowed");
    assert_eq!(positions(&partial.waits_for), [3, 2]);
    // An irreversible call that runs may still commit: that is asked for first.
    let refused = plan(&items, Scope::FromPosition(2), false, 4).expect_err("it may commit");
    assert_eq!(refused.reason, Reason::Residue);
}

#[test]
fn the_next_step_is_one_that_no_call_has_used() {
    assert_eq!(next_step_index(&[]), 1);
    assert_eq!(next_step_index(&[compensable(1, 0)]), 1);
    assert_eq!(next_step_index(&[compensable(1, 7), compensable(2, 3)]), 8);
}

fn item(position: u32) -> impl Strategy<Value = Item> {
    let states = prop::sample::select(EffectState::ALL);
    let entries = prop::sample::select(UndoState::ALL);
    (any::<bool>(), states, entries, 0u32..20, any::<bool>(), any::<bool>()).prop_map(
        move |(is_compensable, state, entry, step_index, is_granted, is_maybe)| {
            let outcome = if is_maybe { Outcome::MaybeApplied } else { Outcome::NotApplied };
            let item = if is_compensable {
                Item { entry: Some(entry), ..compensable(position, step_index) }
            } else {
                irreversible(position, step_index, state)
            };
            Item { state, outcome: Some(outcome), is_granted, ..item }
        },
    )
}

fn session() -> impl Strategy<Value = Vec<Item>> {
    (0u32..24).prop_flat_map(|n| (1..=n).map(item).collect::<Vec<_>>()).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_is_strictly_descending_in_scope_and_complete(
        items in session(),
        from in 0u32..26,
        step in prop::option::of(0u32..20),
    ) {
        let scopes = [Scope::Whole, Scope::FromPosition(from), Scope::ToStep(step.unwrap_or(from))];
        for scope in scopes {
            let Ok(plan) = plan(&items, scope, true, 25) else {
                prop_assert!(matches!(scope, Scope::ToStep(_)));
                continue;
            };
            let walk = positions(&plan.walk);
            prop_assert!(walk.windows(2).all(|pair| pair[0] > pair[1]));
            let mut expected: Vec<u32> = items
                .iter()
                .filter(|i| i.entry.is_some_and(UndoState::is_open))
                .filter_map(|i| i.position)
                .filter(|position| *position >= plan.from_position)
                .collect();
            expected.sort_unstable();
            expected.reverse();
            prop_assert_eq!(walk, expected);
            prop_assert!(items.iter().all(|i| i.step_index < plan.next_step_index));
            if let Scope::ToStep(keep) = scope {
                // Nothing that is kept is undone, and every step above it is.
                let is_over = |i: &Item| {
                    use EffectState::{Compensated, Rejected, Replayed};
                    matches!(i.state, Compensated | Rejected | Replayed)
                        || i.outcome == Some(Outcome::NotApplied)
                };
                prop_assert!(plan.walk.iter().all(|i| i.step_index > keep || is_over(i)));
                let above = items.iter().filter(|i| i.step_index > keep);
                prop_assert!(above.filter_map(|i| i.position).all(|p| p >= plan.from_position));
            }
        }
    }
}
