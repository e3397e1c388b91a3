//! One compensation call, from the prepared call to the report about it.

use std::time::{Duration, Instant};

use undolog_core::retry::CallOutcome;
use undolog_store::walk::{Claim, Outcome, Place, PreparedCall, Report};

use crate::{
    egress::{Answer, Call, Reached},
    handler::Shared,
    own_process,
};

/// What a call came to.
pub(crate) struct Made {
    pub(crate) outcome: Outcome,
    pub(crate) answer: Answer,
}

impl From<Answer> for Made {
    fn from(answer: Answer) -> Self {
        Self { outcome: Outcome::Ended(answer.outcome), answer }
    }
}

impl Made {
    pub(crate) fn without_answer(outcome: Outcome, error: String) -> Self {
        let call = CallOutcome::Retry;
        Self { outcome, answer: Answer::without_response(call, Reached::Perhaps, error) }
    }
}

/// Makes the call, unless the process has to end before it has.
pub(crate) async fn make(
    shared: &Shared,
    claim: &Claim,
    prepared: PreparedCall,
    place: Place,
) -> Report {
    let PreparedCall { undo_attempt_id, undo_id, effect_id, number, compensation, .. } = prepared;
    let call =
        Call { org_slug: claim.org_slug.clone(), rendered: prepared.call, rules: prepared.rules };
    let started = Instant::now();
    let call = async {
        match place {
            Place::Worker => shared.egress.call(&call).await.into(),
            Place::OwnProcess => {
                let options = &shared.options;
                own_process::call(&options.one_call, &options.egress, call.clone()).await
            }
        }
    };
    let made = tokio::select! {
        biased;
        made = call => made,
        () = shared.give_up.cancelled() => {
            let mut made = Made::without_answer(Outcome::HandedBack, String::new());
            made.answer.error = None;
            made
        }
    };
    let took = started.elapsed();
    let Made { outcome, answer } = made;
    let may_have_run = answer.may_have_run();
    let report = Report {
        undo_attempt_id,
        undo_id,
        outcome,
        status: answer.status,
        error: answer.error,
        response: answer.response,
        response_truncated: answer.response_truncated,
        retry_after_ms: answer.retry_after_ms,
        may_have_run,
    };
    observe(&report, took);
    tracing::info!(
        org.id = %claim.org_id,
        session.id = %claim.session_id,
        effect.id = %effect_id,
        undo.id = %undo_id,
        compensation,
        attempt = number,
        outcome = report.outcome.as_str(),
        status = report.status,
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "compensation called"
    );
    report
}

fn observe(report: &Report, took: Duration) {
    let outcome = report.outcome.as_str();
    metrics::counter!("undolog_compensations_total", "outcome" => outcome).increment(1);
    metrics::histogram!("undolog_compensation_duration_seconds").record(took.as_secs_f64());
    if let Outcome::Ended(CallOutcome::Defer { after_ms }) = report.outcome {
        metrics::histogram!("undolog_compensation_deferral_seconds")
            .record(Duration::from_millis(after_ms).as_secs_f64());
    }
}
