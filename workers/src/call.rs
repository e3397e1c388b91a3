//! One compensation call, from the prepared call to the report about it.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use undolog_core::retry::CallOutcome;
use undolog_store::walk::{Claim, Outcome, PreparedCall, Report};

use crate::egress::{Call, Egress};

/// Makes the call, unless the process has to end before it has.
pub(crate) async fn make(
    egress: &Egress,
    claim: &Claim,
    prepared: PreparedCall,
    give_up: &CancellationToken,
) -> Report {
    let PreparedCall { undo_attempt_id, undo_id, effect_id, number, compensation, .. } = prepared;
    let call = Call {
        org_slug: claim.org_slug.clone(),
        rendered: prepared.call,
        done_statuses: prepared.done_statuses,
    };
    let started = Instant::now();
    let answer = tokio::select! {
        biased;
        answer = egress.call(&call) => Some(answer),
        () = give_up.cancelled() => None,
    };
    let took = started.elapsed();
    let report = match answer {
        Some(answer) => Report {
            undo_attempt_id,
            undo_id,
            outcome: Outcome::Ended(answer.outcome),
            status: answer.status,
            error: answer.error,
            response: answer.response,
            response_truncated: answer.response_truncated,
            retry_after_ms: answer.retry_after_ms,
        },
        None => Report {
            undo_attempt_id,
            undo_id,
            outcome: Outcome::HandedBack,
            status: None,
            error: None,
            response: Vec::new(),
            response_truncated: false,
            retry_after_ms: None,
        },
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
