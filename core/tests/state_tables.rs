//! Every cell of the state tables: the moves that exist, and that no other does.

use std::collections::BTreeSet;

use undolog_core::Tier;
use undolog_core::state::{
    ApprovalEvent, ApprovalState, DeadLetterEvent, DeadLetterState, EffectEvent, EffectState,
    RollbackEvent, RollbackState, SessionEvent, SessionState, UndoEvent, UndoState, approval,
    dead_letter, effect, rollback, session, undo,
};

macro_rules! assert_table {
    ($states:ty, $events:ty, $table:expr, $expected:expr) => {{
        let mut found = BTreeSet::new();
        let froms = std::iter::once(None).chain(<$states>::ALL.iter().copied().map(Some));
        for from in froms {
            for event in <$events>::ALL.iter().copied() {
                let to: Option<$states> = $table(from, event);
                if let Some(to) = to {
                    let from = from.map_or("new", |state: $states| state.as_str());
                    found.insert(format!("{from} {event} {to}"));
                }
            }
        }
        let expected = expand($expected);
        let extra: Vec<_> = found.difference(&expected).collect();
        let missing: Vec<_> = expected.difference(&found).collect();
        assert!(extra.is_empty() && missing.is_empty(), "extra {extra:?}, missing {missing:?}");
    }};
}

/// Lines of `from|from event|event to`; `=` stays in the state.
fn expand(table: &str) -> BTreeSet<String> {
    let mut moves = BTreeSet::new();
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let [froms, events, to] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{line:?} is no row");
        };
        for from in froms.split('|') {
            for event in events.split('|') {
                let to = if to == "=" { from } else { to };
                assert!(moves.insert(format!("{from} {event} {to}")), "{line:?} repeats a move");
            }
        }
    }
    moves
}

#[test]
fn session() {
    assert_table!(
        SessionState,
        SessionEvent,
        session::transition,
        "
        new session_begun active
        active|awaiting_approval session_approval_asked awaiting_approval
        awaiting_approval session_approvals_cleared active
        active session_completed completed
        active|awaiting_approval session_failed failed
        active|awaiting_approval session_rejection_halted halted
        active|awaiting_approval|completed|halted session_rollback_requested failed
        failed session_rollback_started compensating
        active|awaiting_approval session_partial_rollback_started compensating
        completed|failed|halted session_partial_rollback_started compensating
        compensating session_rollback_widened compensating
        compensating session_partial_rollback_done active
        compensating session_partial_rollback_done_awaiting awaiting_approval
        compensating session_partial_rollback_done_completed completed
        compensating session_partial_rollback_done_failed failed
        compensating session_partial_rollback_done_halted halted
        compensating session_compensated compensated
        compensating session_walk_halted halted
        compensated|halted session_reopened compensating
        compensated session_dead_lettered halted
        halted session_settled halted
        active|awaiting_approval session_savepoint_taken =
        completed|compensated|failed|halted session_sealed =
        "
    );
}

const ANY_REPORT: &str = "
    pending|executing|committed|compensating|compensated stale_report|result_conflict =
    compensation_failed|approved|rejected|failed|unknown stale_report|result_conflict =
    committed replayed committed
    pending|executing|committed|compensating|compensated contradicted =
    compensation_failed|approved|rejected|failed|unknown contradicted =
    failed|unknown|rejected result_stands committed
    unknown|failed committed|resolved_committed committed
    unknown failed_not_applied failed
    unknown|failed resolved_not_applied failed
";

#[test]
fn effect_of_a_compensable_call() {
    let rows = "
        new intercepted pending
        pending granted executing
        executing committed committed
        executing failed_not_applied|failed_maybe_applied failed
        executing lease_lost|reported_unknown unknown
        unknown grant_resumed executing
        failed|unknown retried executing
        committed|unknown|failed compensation_started compensating
        compensating compensated compensated
        compensating compensation_failed compensation_failed
        compensation_failed compensation_retried compensating
        compensated compensation_reopened compensating
        compensating|compensation_failed late_success compensated
        compensating|compensation_failed resolved_compensated compensated
        compensating|compensated|compensation_failed late_result =
    ";
    assert_table!(
        EffectState,
        EffectEvent,
        |from, event| effect::transition(from, event, Tier::Compensable),
        &format!("{ANY_REPORT}{rows}")
    );
}

#[test]
fn effect_of_an_irreversible_call() {
    let rows = "
        new intercepted pending
        pending approved|auto_approved approved
        pending rejected|timed_out rejected
        pending|approved voided rejected
        approved lapsed|revoked rejected
        approved granted approved
        approved committed committed
        approved failed_not_applied|failed_maybe_applied failed
        approved lease_lost|reported_unknown unknown
        unknown grant_resumed approved
        failed|unknown retried pending
    ";
    assert_table!(
        EffectState,
        EffectEvent,
        |from, event| effect::transition(from, event, Tier::Irreversible),
        &format!("{ANY_REPORT}{rows}")
    );
}

#[test]
fn a_safe_call_has_no_effect_row() {
    assert_table!(
        EffectState,
        EffectEvent,
        |from, event| effect::transition(from, event, Tier::Safe),
        ""
    );
}

#[test]
fn undo_entry() {
    assert_table!(
        UndoState,
        UndoEvent,
        undo::transition,
        "
        new undo_registered pending
        pending undo_started running
        running undo_attempt_failed|undo_deferred|undo_interrupted|undo_handed_back running
        running undo_compensated compensated
        pending|running undo_failed failed
        pending|failed undo_skipped skipped
        failed undo_retried pending
        pending|running|failed|skipped undo_late_success compensated
        pending|failed|skipped undo_resolved compensated
        "
    );
}

#[test]
fn approval() {
    assert_table!(
        ApprovalState,
        ApprovalEvent,
        approval::transition,
        "
        new approval_requested pending
        pending approval_approved|approval_modified approved
        pending approval_rejected|approval_voided rejected
        pending approval_timed_out timed_out
        pending approval_voted pending
        pending approval_auto_approved auto_approved
        approved|auto_approved approval_spent|approval_revoked|approval_lapsed|approval_voided =
        "
    );
}

#[test]
fn rollback() {
    assert_table!(
        RollbackState,
        RollbackEvent,
        rollback::transition,
        "
        new rollback_started draining
        draining rollback_drained walking
        draining|walking|halted rollback_widened draining
        draining|walking rollback_halted halted
        draining|walking rollback_compensated compensated
        halted|compensated rollback_reopened draining
        compensated rollback_dead_lettered halted
        draining|walking|halted rollback_superseded superseded
        "
    );
}

#[test]
fn dead_letter() {
    assert_table!(
        DeadLetterState,
        DeadLetterEvent,
        dead_letter::transition,
        "
        new dead_letter_opened open
        open|closed dead_letter_noted =
        open dead_letter_closed closed
        "
    );
}

#[test]
fn no_event_name_belongs_to_two_machines() {
    let mut names = BTreeSet::new();
    let mut count = 0;
    macro_rules! collect {
        ($($events:ty),+) => {$(
            for event in <$events>::ALL {
                names.insert(event.as_str());
                count += 1;
                assert_eq!(event.as_str().parse(), Ok(*event));
            }
        )+};
    }
    collect!(SessionEvent, EffectEvent, UndoEvent, ApprovalEvent, RollbackEvent, DeadLetterEvent);
    assert_eq!(names.len(), count);
}

#[test]
fn the_drawing_shows_every_machine() {
    let page = undolog_core::state::mermaid();
    assert_eq!(page.matches("```mermaid\nstateDiagram-v2\n").count(), 7);
    assert!(page.contains("    [*] --> pending: intercepted\n"));
    assert!(page.contains("    compensating --> compensated: session_compensated\n"));
}
