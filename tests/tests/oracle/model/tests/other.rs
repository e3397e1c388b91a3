//! Evidence and grants (§13.2), widening, LIFO, and the plain whole rollback.

use super::*;

const A: Call = 1;
const B: Call = 2;

#[test]
fn m1_a_contradiction_grants_nothing() {
    let mut world = World::recording();
    world.grant(A, Tool::COMPENSABLE, 1);
    world.lose(A);
    let verdict = Verdict::NotApplied;
    world.hear(Command::OperatorResolveUnknown { call: A, verdict }, Answer::Ok);
    world.skip_top(A);
    world.effect(A).state = EffectState::FailedNotApplied;
    world.see();
    let commit = Command::Commit { call: A, attempt: 1, value: 10 };
    world.refuses(commit, Answer::Ok);
    world.hear(commit, Answer::refused("CONTRADICTED"));
    world.wrong(false, |_| {}); // no letter
    world.letter(1, A, None, "CONTRADICTED");
    world.rest();
    let again = World::intercept(A, Tool::COMPENSABLE);
    let rule = world.refuses(again, Answer::Execute { attempt: 2 });
    assert_eq!(rule, "§13.2 contradicted: nothing is granted");
    let rule = world.refuses(again, Answer::refused("INTERNAL"));
    assert_eq!(rule, "§6 errors: a refusal has a reason, never INTERNAL");
    world.refuses(again, Answer::Replay { value: 10 });
    world.hear(again, Answer::refused("CONTRADICTED"));
    world.rest();
}

#[test]
fn m2_a_success_of_any_attempt_is_the_result() {
    let mut world = World::recording();
    world.grant(A, Tool::COMPENSABLE, 1);
    world.not_applied(A);
    world.see();
    world.grant(A, Tool::COMPENSABLE, 2);
    world.hear(Command::Commit { call: A, attempt: 1, value: 10 }, Answer::Ok);
    world.effect(A).results.push((1, 10));
    world.wrong(true, |_| {}); // its skipped entry gets a new one
    world.push(A, 1);
    world.see();
    world.hear(Command::Fail { call: A, attempt: 2, effect: FailEffect::NotApplied }, Answer::Ok);
    let entry = world.rows.entries.iter_mut().find(|e| e.attempt == 2).expect("an entry");
    entry.state = EntryState::Skipped;
    entry.skip_reason = Some("not_applied".to_owned());
    let effect = world.effect(A);
    (effect.state, effect.live_grant) = (EffectState::FailedNotApplied, false);
    world.rest();
    let again = World::intercept(A, Tool::COMPENSABLE);
    let rule = world.refuses(again, Answer::Execute { attempt: 3 });
    assert_eq!(rule, "§12/§13.2 no grant after a commit");
    world.hear(again, Answer::Replay { value: 10 });
    world.effect(A).state = EffectState::Committed;
    world.rest();
}

#[test]
fn m3_a_failure_below_the_savepoint_widens_to_the_whole() {
    let mut world = World::new(Config::default());
    world.grant(A, Tool::COMPENSABLE, 1);
    world.grant(B, Tool::COMPENSABLE, 1);
    world.commit(B, 20);
    world.see();
    world.hear(Command::RollbackPartial { to: 2, allow_residue: false }, Answer::Ok);
    world.start(RollbackKind::Partial, 2, RollbackState::Walking);
    world.see();
    let effect = FailEffect::MaybeApplied;
    world.hear(Command::Fail { call: A, attempt: 1, effect }, Answer::Ok);
    let row = world.effect(A);
    (row.state, row.live_grant) = (EffectState::FailedMaybeApplied, false);
    let violation = world.wrong(false, |_| {});
    assert_eq!(violation.rule, "§7/§13.1 a wider request widens the live rollback");
    world.wrong(false, |w| {
        w.send(2);
        w.end(SessionState::Active);
    });
    let rollback = world.rollback();
    (rollback.kind, rollback.from) = (RollbackKind::Whole, 0);
    rollback.state = RollbackState::Draining;
    world.see();
    world.work();
    world.rollback().state = RollbackState::Walking;
    let violation = world.wrong(false, |w| w.send(1));
    assert_eq!(violation.rule, "§7/§12 LIFO by position");
    world.send(2);
    world.send(1);
    world.wrong(true, |w| w.end(SessionState::Active));
    world.end(SessionState::Compensated);
    world.rest();
}

#[test]
fn a_failure_inside_the_scope_does_not_widen() {
    let mut world = World::new(Config::default());
    world.grant(A, Tool::COMPENSABLE, 1);
    world.commit(A, 10);
    world.see();
    world.grant(B, Tool::COMPENSABLE, 1);
    world.hear(Command::RollbackPartial { to: 2, allow_residue: false }, Answer::Ok);
    world.start(RollbackKind::Partial, 2, RollbackState::Draining);
    world.see();
    world.work();
    world.wrong(false, |w| w.send(2)); // B's grant is live
    let effect = FailEffect::MaybeApplied;
    world.hear(Command::Fail { call: B, attempt: 1, effect }, Answer::Ok);
    let row = world.effect(B);
    (row.state, row.live_grant) = (EffectState::FailedMaybeApplied, false);
    world.wrong(false, |w| w.rollback().kind = RollbackKind::Whole);
    world.see();
    world.work();
    world.send(2);
    world.wrong(false, |w| w.send(1));
    world.end(SessionState::Active);
    world.rest();
}

#[test]
fn a_dead_letter_halts_the_walk_and_the_lower_entries_wait() {
    let mut world = World::new(Config::default());
    for (call, value) in [(A, 10), (B, 20)] {
        world.grant(call, Tool::COMPENSABLE, 1);
        world.commit(call, value);
        world.see();
    }
    world.refuses(World::intercept(A, Tool::COMPENSABLE), Answer::Execute { attempt: 2 });
    world.hear(Command::SessionLeaseLost, Answer::Ok);
    world.start(RollbackKind::Whole, 0, RollbackState::Walking);
    world.see();
    world.work();
    world.rows.entries[1].state = EntryState::Failed;
    world.effect(B).state = EffectState::CompensationFailed;
    world.rollback().state = RollbackState::Halted;
    world.rows.session = SessionState::Halted;
    world.wrong(false, |_| {}); // no letter
    world.letter(1, B, Some(2), "EXHAUSTED");
    world.wrong(false, |w| w.send(1));
    world.rest();
    world.hear(Command::OperatorRetry { letter: 1 }, Answer::Ok);
    world.rows.letters.clear();
    world.rows.entries[1].state = EntryState::Pending;
    world.effect(B).state = EffectState::Compensating;
    world.rollback().state = RollbackState::Walking;
    world.rows.session = SessionState::Compensating;
    world.see();
    world.work();
    world.send(2);
    world.send(1);
    world.end(SessionState::Compensated);
    world.rest();
    world.wrong(false, |w| w.send(1));
}

#[test]
fn an_approval_is_one_grant() {
    let mut world = World::recording();
    world.approved(A);
    let again = World::intercept(A, Tool::IRREVERSIBLE);
    let rule = world.refuses(again, Answer::Execute { attempt: 1 });
    assert_eq!(rule, "§12 at most one live grant");
    world.lose(A);
    let rule = world.refuses(again, Answer::Execute { attempt: 2 });
    assert_eq!(rule, "§8/§12 no run without an unspent decision");
    world.hear(again, Answer::refused("OUTCOME_UNKNOWN"));
    world.wrong(false, |w| w.effect(A).live_grant = true);
    world.rest();
}
