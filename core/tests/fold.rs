//! The fold over a session's events.

use undolog_core::state::{FoldError, Step, Subject, fold};

fn step<'a>(
    seq: u64,
    subject: Subject,
    id: &'a str,
    kind: &'a str,
    from: Option<&'a str>,
    to: &'a str,
) -> Step<'a> {
    Step { seq, subject, id, kind, from, to }
}

fn history() -> Vec<Step<'static>> {
    use Subject::{Effect, Rollback, Session, Undo};
    vec![
        step(1, Session, "s", "session_begun", None, "active"),
        step(2, Effect, "e", "intercepted", None, "pending"),
        step(3, Undo, "u", "undo_registered", None, "pending"),
        step(4, Effect, "e", "granted", Some("pending"), "executing"),
        step(5, Effect, "e", "committed", Some("executing"), "committed"),
        step(6, Effect, "e", "replayed", Some("committed"), "committed"),
        step(7, Session, "s", "session_failed", Some("active"), "failed"),
        step(8, Session, "s", "session_rollback_started", Some("failed"), "compensating"),
        step(9, Rollback, "r", "rollback_started", None, "draining"),
        step(10, Rollback, "r", "rollback_drained", Some("draining"), "walking"),
        step(11, Undo, "u", "undo_started", Some("pending"), "running"),
        step(12, Effect, "e", "compensation_started", Some("committed"), "compensating"),
        step(13, Undo, "u", "undo_compensated", Some("running"), "compensated"),
        step(14, Effect, "e", "compensated", Some("compensating"), "compensated"),
        step(15, Rollback, "r", "rollback_compensated", Some("walking"), "compensated"),
        step(16, Session, "s", "session_compensated", Some("compensating"), "compensated"),
    ]
}

#[test]
fn a_whole_history_gives_the_last_state_of_every_subject() {
    let states = fold(history()).expect("a legal history");
    assert_eq!(states.len(), 4);
    assert!(states.values().all(|state| state == "compensated"));
}

#[test]
fn a_lost_event_is_a_gap_wherever_it_was() {
    for lost in 0..history().len() - 1 {
        let mut steps = history();
        steps.remove(lost);
        assert!(matches!(fold(steps), Err(FoldError::Gap { .. })), "without {lost}");
    }
}

#[test]
fn a_step_from_another_state_is_discontinuous() {
    let mut steps = history();
    steps[4].from = Some("approved");
    assert!(matches!(fold(steps), Err(FoldError::Discontinuous { seq: 5, .. })));
    let mut steps = history();
    steps[15].from = None;
    assert!(matches!(fold(steps), Err(FoldError::Discontinuous { seq: 16, .. })));
}

#[test]
fn a_move_that_the_tables_do_not_have_is_illegal() {
    let mut steps = history();
    steps.truncate(5);
    steps[4].to = "compensated";
    assert!(matches!(fold(steps), Err(FoldError::Illegal { seq: 5, .. })));
}

#[test]
fn unknown_names_are_no_steps() {
    let mut steps = history();
    steps[1].kind = "undo_registered";
    assert!(matches!(fold(steps), Err(FoldError::UnknownName { seq: 2, .. })));
}
