//! Reasons and refusals.

use undolog_core::reason::{Code, Reason, Refusal};
use undolog_core::state::SessionState;

#[test]
fn every_reason_has_a_name_a_sentence_and_comes_back_from_its_name() {
    for reason in Reason::ALL.iter().copied() {
        let name = reason.as_str();
        assert_eq!(name.parse(), Ok(reason));
        assert!(name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'), "{name}");
        let sentence = reason.explanation();
        assert!(sentence.ends_with('.') && sentence.len() > 20, "{name}: {sentence}");
    }
}

#[test]
fn session_states_name_their_refusal() {
    for state in SessionState::ALL.iter().copied() {
        let expected = match state {
            SessionState::Active => None,
            other => Some(format!("SESSION_{}", other.as_str().to_uppercase())),
        };
        assert_eq!(Reason::of_session(state).map(|r| r.as_str().to_owned()), expected);
    }
}

#[test]
fn only_reasons_that_pass_by_themselves_ask_to_retry() {
    let retried: Vec<_> = Reason::ALL.iter().filter(|r| r.retry_after_ms().is_some()).collect();
    let expected = [
        &Reason::InProgress,
        &Reason::SessionAwaitingApproval,
        &Reason::UndoRunning,
        &Reason::RateLimited,
        &Reason::Unavailable,
    ];
    assert_eq!(retried, expected);
    assert_eq!(Reason::InProgress.code(), Code::Aborted);
}

#[test]
fn a_refusal_carries_words_and_ids() {
    let refusal = Refusal::because(Reason::StepConflict, "step 3 is taken")
        .with("step_index", 3)
        .retry_after_ms(250);
    assert_eq!(refusal.to_string(), "STEP_CONFLICT: step 3 is taken");
    assert_eq!(refusal.metadata, [("step_index", "3".to_owned())]);
    assert_eq!((refusal.code(), refusal.retry_after_ms), (Code::AlreadyExists, Some(250)));
    let plain = Refusal::from(Reason::InProgress);
    assert_eq!(plain.message, Reason::InProgress.explanation());
    assert_eq!(plain.retry_after_ms, Reason::InProgress.retry_after_ms());
}
