//! Asks about unknown calls whose tool says how.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::task::JoinSet;
use undolog_core::{answer::Rules, probe::Answer};
use undolog_store::{
    StepError, crash_point, guard,
    probes::{self, Question, SettleProbe, Settled},
    sweeps::Swept,
};
use uuid::Uuid;

use crate::{egress::Call, handler::Shared, walk::random_below};

/// Organisations that are asked for at the same time.
const ORGS_MAX: usize = 32;

/// The organisations whose unknown calls this process asks about now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probing(Arc<Mutex<HashSet<Uuid>>>);

/// An organisation that is asked for.
#[derive(Debug)]
struct Asking {
    probing: Probing,
    org_id: Uuid,
}

impl Probing {
    fn orgs(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        // Nothing that holds it can panic halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: its questions of before are not answered yet, or too many others' are not.
    fn begin(&self, org_id: Uuid) -> Option<Asking> {
        let mut orgs = self.orgs();
        let may = orgs.len() < ORGS_MAX && orgs.insert(org_id);
        may.then(|| Asking { probing: self.clone(), org_id })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.probing.orgs().remove(&self.org_id);
    }
}

/// Begins to ask what is due, each organisation beside the others, and does not wait for answers:
/// an endpoint that hangs keeps nobody waiting but its own organisation's next questions.
pub(crate) async fn run(shared: &Arc<Shared>) -> Result<Swept, StepError> {
    let mut orgs = probes::due_orgs(&shared.store).await?;
    // With more of them than are asked for at once, it is not always the same ones' turn.
    let count = orgs.len();
    let first = usize::try_from(random_below(count as u64)).unwrap_or(0);
    orgs.rotate_left(first.min(count));
    for org_id in orgs {
        if !guard!("probe.apart") {
            of_org(shared, org_id).await;
            continue;
        }
        let Some(asking) = shared.probing.begin(org_id) else { continue };
        let shared = Arc::clone(shared);
        let tasks = shared.tasks.clone();
        tasks.spawn(async move {
            let _asking = asking;
            of_org(&shared, org_id).await;
        });
    }
    Ok(Swept::default())
}

/// Asks an organisation's questions.
async fn of_org(shared: &Arc<Shared>, org_id: Uuid) {
    let questions = match probes::claim(&shared.store, org_id).await {
        Ok(questions) => questions,
        Err(error) => {
            tracing::warn!(org.id = %org_id, %error, "no questions were claimed");
            return;
        }
    };
    let mut asking = JoinSet::new();
    for question in questions {
        crash_point!("probe.after_claim");
        let shared = Arc::clone(shared);
        asking.spawn(async move { ask(&shared, org_id, question).await });
    }
    let mut settled = 0;
    while let Some(asked) = asking.join_next().await {
        match asked {
            Ok(Ok(Settled::Resolved)) => settled += 1,
            Ok(Ok(Settled::Stays | Settled::TooLate)) => {}
            Ok(Err(error)) => {
                tracing::warn!(org.id = %org_id, %error, "a probe's answer was not written");
            }
            Err(error) => tracing::error!(%error, "a probe ended without an answer"),
        }
    }
    metrics::counter!("undolog_swept_total", "sweep" => "probes").increment(settled);
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
    let rules = Rules { done_statuses: probe.statuses(), ..Rules::default() };
    let call = Call { org_slug: question.org_slug.clone(), rendered, rules };
    let answer = shared.egress.call(&call).await;
    match answer.status {
        // A body that broke off or ran over its bound is no answer, whatever its status.
        Some(status) if answer.error.is_none() => {
            probe.read(status, &answer.response, answer.response_truncated)
        }
        _ => Answer::CannotTell(answer.error.unwrap_or_default()),
    }
}
