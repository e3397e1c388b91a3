//! The shape of a durable step, and its runner.

use std::future::Future;

use undolog_core::role::Role;
use uuid::Uuid;

use crate::{
    error::{Decided, StepError},
    lanes::Lane,
    pool::Store,
    registry::Asked,
    tenant::Tenant,
};

/// How often a step is tried when Postgres answers with a deadlock or a serialisation failure.
const TRIES_MAX: u32 = 5;

/// Who calls: always from the credential, never from the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The organisation of the key.
    pub org_id: Uuid,
    /// Who acts; sessions belong to principals, and a rotated key keeps its principal.
    pub principal: String,
    /// What the key may do.
    pub role: Role,
    /// The call came through a proxy.
    pub via_proxy: bool,
}

impl Caller {
    /// May this caller work with a session of `owner`? Agents and executors-by-agent reach only
    /// their own; the other roles reach every session of their organisation.
    pub fn reaches(&self, owner: &str) -> bool {
        !self.role.is_bound_to_own_sessions() || self.principal == owner
    }
}

/// One durable step: a command that runs in one transaction.
pub trait Step: Send + Sync + 'static {
    /// What the caller hears.
    type Reply: Send + 'static;
    /// The verb, for logs and metrics.
    const NAME: &'static str;

    /// Which connections it may use.
    const LANE: Lane = Lane::Work;

    /// The organisation whose rows it touches.
    fn org_id(&self) -> Uuid;

    /// The session that it locks, if that is known before the journal was asked. In one process the
    /// steps of one session wait for each other without a connection.
    fn session_id(&self) -> Option<Uuid> {
        None
    }

    /// Reads, decides and writes. `Ok(Err(refusal))` commits what was written and refuses;
    /// `Err(_)` writes nothing. It can run more than once (deadlocks), so it keeps no state.
    fn run(
        &self,
        tx: &mut Tenant,
    ) -> impl Future<Output = Result<Decided<Self::Reply>, StepError>> + Send;
}

/// What becomes of what a step wrote.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    Kept,
    TakenBack,
}

/// Runs a step, again after deadlocks and serialisation failures.
pub(crate) async fn run<S: Step>(store: &Store, step: &S) -> Result<Decided<S::Reply>, StepError> {
    let mut tries = 1;
    loop {
        match once(store, step, Outcome::Kept).await {
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {
                metrics::counter!("undolog_step_conflicts_total", "step" => S::NAME).increment(1);
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// Runs a step and takes everything back that it wrote, after the work on schemas that it needs.
pub(crate) async fn try_out<S: Step>(
    store: &Store,
    step: &S,
) -> Result<Decided<S::Reply>, StepError> {
    let mut asked = Asked::default();
    loop {
        match once(store, step, Outcome::TakenBack).await {
            Err(StepError::Apart(work)) => asked.serve(work, store, step.org_id()).await?,
            ended => return ended,
        }
    }
}

async fn once<S: Step>(
    store: &Store,
    step: &S,
    outcome: Outcome,
) -> Result<Decided<S::Reply>, StepError> {
    let mut tx = match outcome {
        Outcome::Kept => Tenant::begin_step(store, step.org_id()).await?,
        Outcome::TakenBack => Tenant::begin(store, step.org_id()).await?,
    };
    match step.run(&mut tx).await {
        Ok(decided) if outcome == Outcome::Kept => {
            crate::crash_point!("step.before_commit");
            tx.commit().await?;
            crate::crash_point!("step.after_commit");
            Ok(decided)
        }
        Ok(decided) => {
            tx.rollback().await?;
            Ok(decided)
        }
        Err(error) => {
            // When the rollback fails as well, the connection is closed by the drop.
            if let Err(rollback) = tx.rollback().await {
                tracing::debug!(error = %rollback, step = S::NAME, "rollback was not confirmed");
            }
            Err(error)
        }
    }
}
