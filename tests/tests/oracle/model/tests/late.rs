//! Late evidence after a partial rollback has ended (§13.1).

use super::*;

const A: Call = 1;
const B: Call = 2;
const C: Call = 3;

/// A is undone while its outcome is unknown; then B and C are committed at 2 and 3.
fn undone_then_more(tool: Tool) -> World {
    let mut world = World::recording();
    world.hear(Command::Savepoint, Answer::At(1));
    world.grant(A, tool, 1);
    world.lose(A);
    world.undo_first(Some(1));
    more(&mut world);
    world
}

fn more(world: &mut World) {
    for (call, value) in [(B, 20), (C, 30)] {
        world.grant(call, Tool::COMPENSABLE, 1);
        world.commit(call, value);
        world.see();
    }
}

/// The late success of A is stored; its state stays compensated.
fn late_commit(world: &mut World) {
    let command = Command::Commit { call: A, attempt: 1, value: 10 };
    world.hear(command, Answer::refused("ALREADY_UNDONE"));
    world.effect(A).results.push((1, 10));
}

/// A's new entry lies on top and a rollback runs over it.
fn new_entry(world: &mut World) -> (UndoId, Position) {
    let undo_id = world.push(A, 1);
    let position = world.rows.last_position;
    world.start(RollbackKind::Partial, position, RollbackState::Draining);
    (undo_id, position)
}

fn only_a_is_undone(world: &mut World, undo_id: UndoId) {
    world.see();
    let other = World::intercept(9, Tool::COMPENSABLE);
    let refusals = world.oracle.allowed(&other);
    assert_eq!(refusals, [Allowed::Retry("UNDO_RUNNING")]);
    world.refuses(other, Answer::refused("SESSION_COMPENSATING"));
    world.refuses(other, Answer::Execute { attempt: 1 });
    world.work();
    world.rollback().state = RollbackState::Walking;
    for entry in [2, 3] {
        let violation = world.wrong(false, |w| {
            w.send(undo_id);
            w.send(entry);
        });
        assert_eq!(violation.rule, "§13.1 nothing is undone that nobody asked to undo");
    }
    world.wrong(true, |_| {});
    world.send(undo_id);
    world.wrong(true, |w| w.end(SessionState::Halted));
    world.end(SessionState::Active);
    world.rest();
    world.hear(World::intercept(B, Tool::COMPENSABLE), Answer::Replay { value: 20 });
    world.wrong(false, |w| w.send(2));
    world.refuses(World::intercept(A, Tool::COMPENSABLE), Answer::Execute { attempt: 2 });
}

#[test]
fn c1a_repeatable_undoes_only_the_new_entry() {
    let mut world = undone_then_more(Tool::REPEATABLE);
    late_commit(&mut world);
    world.wrong(true, |_| {}); // nothing done about it
    world.wrong(false, |w| {
        w.push(A, 1);
        w.start(RollbackKind::Partial, 1, RollbackState::Draining);
    });
    let violation = world.wrong(false, |w| {
        w.push(A, 1);
        let row = w.rollback();
        (row.live, row.until, row.state) = (true, None, RollbackState::Draining);
        w.rows.session = SessionState::Compensating;
    });
    assert!(violation.rule.starts_with("§13.1"), "{violation}");
    let (undo_id, _) = new_entry(&mut world);
    only_a_is_undone(&mut world, undo_id);
}

#[test]
fn c1b_not_repeatable_is_one_letter_and_its_retry_undoes_only_a() {
    let mut world = undone_then_more(Tool::COMPENSABLE);
    late_commit(&mut world);
    let violation = world.wrong(false, |_| {});
    assert_eq!(violation.rule, "§6 Commit table: one dead letter");
    world.letter(1, A, Some(1), "LATE_COMMIT");
    world.wrong(false, |w| w.rows.session = SessionState::Halted);
    world.wrong(false, |w| w.letter(2, A, None, "LATE_COMMIT"));
    world.wrong(false, |w| {
        new_entry(w);
    });
    world.rest();
    world.hear(Command::OperatorRetry { letter: 1 }, Answer::Ok);
    world.rows.letters.clear();
    world.wrong(true, |_| {}); // the retry came to nothing
    let (undo_id, _) = new_entry(&mut world);
    only_a_is_undone(&mut world, undo_id);
}

#[test]
fn c1c_a_skipped_entry_that_gets_its_result_is_undone_alone() {
    let mut world = World::recording();
    world.grant(A, Tool::COMPENSABLE, 1);
    world.not_applied(A);
    world.see();
    world.undo_first(None);
    more(&mut world);
    world.commit(A, 10);
    world.wrong(true, |_| {});
    let (undo_id, _) = new_entry(&mut world);
    only_a_is_undone(&mut world, undo_id);
}

#[test]
fn c1c_below_the_savepoint_nothing_is_undone() {
    let mut world = World::recording();
    world.grant(A, Tool::COMPENSABLE, 1);
    world.not_applied(A);
    world.see();
    world.grant(B, Tool::COMPENSABLE, 1);
    world.lose(B);
    world.hear(Command::RollbackPartial { to: 2, allow_residue: false }, Answer::Ok);
    world.start(RollbackKind::Partial, 2, RollbackState::Walking);
    world.see();
    world.work();
    world.send(2);
    world.end(SessionState::Active);
    world.rest();
    world.commit(A, 10);
    world.push(A, 1);
    let violation =
        world.wrong(false, |w| w.start(RollbackKind::Partial, 3, RollbackState::Draining));
    assert_eq!(violation.rule, "§13.1 a rollback covers what somebody asked to undo");
    world.rest();
}

#[test]
fn c1_in_a_completed_session_it_is_a_letter() {
    let mut world = undone_then_more(Tool::REPEATABLE);
    world.hear(Command::Complete { accept_unknown: false }, Answer::Ok);
    world.rows.session = SessionState::Completed;
    world.see();
    late_commit(&mut world);
    world.wrong(false, |w| {
        new_entry(w);
    });
    world.letter(1, A, Some(1), "LATE_COMMIT");
    world.rest();
}

#[test]
fn c1d_late_evidence_about_an_irreversible_effect_is_residue() {
    let mut world = World::recording();
    world.approved(A);
    let effect = FailEffect::NotApplied;
    world.hear(Command::Fail { call: A, attempt: 1, effect }, Answer::Ok);
    let row = world.effect(A);
    (row.state, row.live_grant) = (EffectState::FailedNotApplied, false);
    world.see();
    world.undo_first(None);
    world.grant(B, Tool::COMPENSABLE, 1);
    world.commit(B, 20);
    world.see();
    world.commit(A, 10);
    let violation = world.wrong(true, |_| {});
    assert_eq!(violation.rule, "§13.1 counts on the session add up");
    world.rows.residue = 1;
    world.wrong(false, |w| w.start(RollbackKind::Partial, 1, RollbackState::Draining));
    world.wrong(false, |w| w.rows.session = SessionState::Halted);
    world.wrong(false, |w| w.rows.residue = 2);
    world.rest();
    world.hear(World::intercept(A, Tool::IRREVERSIBLE), Answer::Replay { value: 10 });
}

#[test]
fn h1_halted_while_draining_drains_again() {
    const I: Call = 4;
    let mut world = World::recording();
    world.grant(A, Tool::COMPENSABLE, 1);
    world.lose(A);
    world.undo_first(Some(1));
    world.grant(B, Tool::COMPENSABLE, 1);
    world.commit(B, 20);
    world.see();
    world.approved(I);
    world.hear(Command::RollbackWhole, Answer::Ok);
    world.start(RollbackKind::Whole, 0, RollbackState::Draining);
    world.rest();
    late_commit(&mut world);
    world.letter(1, A, Some(1), "LATE_COMMIT");
    world.rows.session = SessionState::Halted;
    world.rollback().state = RollbackState::Halted;
    world.see();
    world.hear(Command::OperatorResolve { letter: 1 }, Answer::Ok);
    world.rows.letters.clear();
    world.rows.session = SessionState::Compensating;
    let violation = world.wrong(false, |w| w.rollback().state = RollbackState::Walking);
    assert_eq!(violation.rule, "§13.1 a reopened rollback drains first");
    world.rollback().state = RollbackState::Draining;
    world.see();
    world.work();
    let violation = world.wrong(false, |w| w.send(2));
    assert_eq!(violation.rule, "§7 nothing is undone while a live grant is in scope");
    world.lose(I);
    world.work();
    world.rollback().state = RollbackState::Halted;
    world.rows.session = SessionState::Halted;
    world.send(2);
    world.wrong(true, |_| {}); // no letter about I
    world.letter(2, I, None, "OUTCOME_UNKNOWN");
    let violation = world.wrong(true, |w| w.letter(3, I, None, "OUTCOME_UNKNOWN"));
    assert_eq!(violation.rule, "§12 exactly one open dead letter");
    world.wrong(false, |w| w.rows.session = SessionState::Compensated);
    world.rest();
}

#[test]
fn h8a_the_clock_does_not_move_a_scope() {
    for minutes in [-10, -1, 10] {
        let mut world = World::recording();
        world.grant(A, Tool::COMPENSABLE, 1);
        world.commit(A, 10);
        world.see();
        world.undo_first(Some(1));
        world.hear(Command::ClockStep { minutes }, Answer::Ok);
        world.see();
        world.grant(B, Tool::COMPENSABLE, 1);
        world.commit(B, 20);
        world.wrong(false, |w| {
            w.start(RollbackKind::Partial, 1, RollbackState::Draining);
        });
        world.wrong(false, |w| {
            w.push(B, 1);
            w.start(RollbackKind::Partial, 3, RollbackState::Draining);
        });
        world.wrong(false, |w| w.send(2));
        world.rest();
    }
}
