//! Asks about unknown calls whose tool says how.

use std::sync::Arc;

use tokio::task::JoinSet;
use undolog_core::probe::Answer;
use undolog_store::{
    StepError, crash_point,
    probes::{self, Question, SettleProbe, Settled},
    sweeps::Swept,
};
use uuid::Uuid;

use crate::{egress::Call, handler::Shared};

/// Asks what is due, all organisations.
pub(crate) async fn run(shared: &Arc<Shared>) -> Result<Swept, StepError> {
    let mut swept = Swept::default();
    for org_id in probes::due_orgs(&shared.store).await? {
        let mut asking = JoinSet::new();
        for question in probes::claim(&shared.store, org_id).await? {
            crash_point!("probe.after_claim");
            let shared = Arc::clone(shared);
            asking.spawn(async move { ask(&shared, org_id, question).await });
        }
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok(Ok(Settled::Resolved)) => swept.settled += 1,
                Ok(Ok(Settled::Stays | Settled::TooLate)) => swept.left += 1,
                Ok(Err(error)) => {
                    swept.left += 1;
                    tracing::warn!(org.id = %org_id, %error, "a probe's answer was not written");
                }
                Err(error) => tracing::error!(%error, "a probe ended without an answer"),
            }
        }
    }
    Ok(swept)
}

async fn ask(shared: &Shared, org_id: Uuid, question: Question) -> Result<Settled, StepError> {
    let answer = tokio::select! {
        answer = answer(shared, &question) => answer,
        // The question was counted; the next one is asked by somebody else.
        () = shared.give_up.cancelled() => return Ok(Settled::Stays),
    };
    crash_point!("probe.after_ask");
    metrics::counter!("undolog_probes_total", "answer" => answer.as_str()).increment(1);
    let Question { session_id, effect_id, attempt, .. } = question;
    tracing::info!(org.id = %org_id, session.id = %session_id, effect.id = %effect_id, attempt,
        answer = answer.as_str(), "a probe answered");
    shared.store.run(SettleProbe { org_id, session_id, effect_id, attempt, answer }).await
}

async fn answer(shared: &Shared, question: &Question) -> Answer {
    let (probe, rendered) = match question.prepare() {
        Ok(prepared) => prepared,
        Err(why) => return Answer::CannotTell(why),
    };
    let call =
        Call { org_slug: question.org_slug.clone(), rendered, done_statuses: probe.statuses() };
    let answer = shared.egress.call(&call).await;
    match answer.status {
        // A body that broke off or ran over its bound is no answer, whatever its status.
        Some(status) if answer.error.is_none() => {
            probe.read(status, &answer.response, answer.response_truncated)
        }
        _ => Answer::CannotTell(answer.error.unwrap_or_default()),
    }
}
