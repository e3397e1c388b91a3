//! What the next call of an entry is, read at the moment of the call.

use std::str::FromStr as _;

use sqlx::FromRow;
use undolog_core::{
    answer::Rules,
    fn_body::{OnMissingResult, OnUnknown, RenderedCall},
    json::Node,
    state::{DeadLetterReason, EffectState, Outcome, ResultBy, SkipReason},
    template::{Context, RenderError, complete, pending_from_node},
};

use crate::{
    effects::{EffectRow, executed_between},
    error::StepError,
    gate::Limits,
    payload,
    probes::{self, Probing},
    registry,
    registry::CompensationBundle,
    session::LockedSession,
    tenant::Tenant,
    undo::UndoRow,
};

/// What becomes of an entry whose turn it is.
#[derive(Debug)]
pub(super) enum Prepared {
    /// It is called.
    Call(Box<Ready>),
    /// There is nothing to undo, or policy says so.
    Skip(SkipReason),
    /// The tool's probe is being asked.
    Wait,
    /// Only a human can bring it further.
    Dead(DeadLetterReason, String),
}

/// A call with what its attempt row needs.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) call: RenderedCall,
    pub(super) fn_hash: [u8; 32],
    /// Of what the endpoint gets.
    pub(super) digest: [u8; 32],
    pub(super) rules: Rules,
    pub(super) result_known: bool,
    /// Scheme, host and port.
    pub(super) host: String,
    pub(super) limits: Limits,
}

/// What is known of the attempt that the entry undoes.
struct Forward {
    state: EffectState,
    outcome: Option<Outcome>,
    result: Option<Node>,
    result_by: Option<ResultBy>,
}

/// Reads registration, arguments and result, and fills the call in.
pub(super) async fn prepare(
    tx: &mut Tenant,
    session: &LockedSession,
    entry: &UndoRow,
    effect: &EffectRow,
) -> Result<Prepared, StepError> {
    prepare_with(tx, session, entry, effect, true).await
}

/// The call as it was before the result of the tool's call was known.
pub(super) async fn prepare_without_result(
    tx: &mut Tenant,
    session: &LockedSession,
    entry: &UndoRow,
    effect: &EffectRow,
) -> Result<Prepared, StepError> {
    prepare_with(tx, session, entry, effect, false).await
}

async fn prepare_with(
    tx: &mut Tenant,
    session: &LockedSession,
    entry: &UndoRow,
    effect: &EffectRow,
    reads_result: bool,
) -> Result<Prepared, StepError> {
    match try_prepare(tx, session, entry, effect, reads_result).await {
        // A stored row that cannot be read would stop the walk for ever without anybody hearing.
        Err(StepError::Corrupt(why)) => Ok(Prepared::Dead(DeadLetterReason::Unrenderable, why)),
        prepared => prepared,
    }
}

async fn try_prepare(
    tx: &mut Tenant,
    session: &LockedSession,
    entry: &UndoRow,
    effect: &EffectRow,
    reads_result: bool,
) -> Result<Prepared, StepError> {
    let mut forward = forward(tx, entry, effect).await?;
    forward.result = forward.result.filter(|_| reads_result);
    if forward.state == EffectState::Failed && forward.outcome == Some(Outcome::NotApplied) {
        return Ok(Prepared::Skip(SkipReason::NotApplied));
    }
    let (name, version) = (&entry.compensation_fn, &entry.compensation_version);
    let epoch = session.row.registry_epoch;
    let bundle = registry::compensation(tx, epoch, name, Some(version)).await?;
    let Some(bundle) = bundle.filter(|bundle| bundle.is_active) else {
        let why = format!("the compensation {name} {version} is not registered or not active");
        return Ok(Prepared::Dead(DeadLetterReason::CompensationMissing, why));
    };
    // An operator who puts an entry back to work has decided that it is to be called.
    let asks = forward.state == EffectState::Unknown && entry.round == 1;
    if asks && bundle.fn_body.on_unknown != OnUnknown::Compensate {
        let why = match bundle.fn_body.on_unknown {
            OnUnknown::Probe => match probes::probing(tx, effect).await? {
                Probing::Open if entry.attempt == effect.attempt => return Ok(Prepared::Wait),
                Probing::Open | Probing::None => {
                    "the call's outcome is unknown and no probe is registered"
                }
                Probing::Over => "the call's outcome is unknown and the probe could not tell",
            },
            _ => "the call's outcome is unknown",
        };
        return Ok(Prepared::Dead(DeadLetterReason::OutcomeUnknown, why.to_owned()));
    }
    if needs_refused_result(entry, &bundle, &forward)? && crate::guard!("walk.result_from") {
        let why = "the compensation needs a result that a proxy or a probe saw, and this one was \
                   reported by the call's own caller";
        return Ok(Prepared::Dead(DeadLetterReason::MissingResult, why.to_owned()));
    }
    let args = args(tx, effect).await?;
    match rendered(tx, session, entry, &bundle, &args, forward.result.as_ref())? {
        Ok(call) => Ok(Prepared::Call(Box::new(Ready {
            digest: call.digest(),
            call,
            fn_hash: bundle.fn_hash,
            rules: bundle.fn_body.rules.clone(),
            result_known: forward.result.is_some(),
            host: bundle.fn_body.origin().to_ascii_lowercase(),
            limits: bundle.limits,
        }))),
        Err(NotRendered::Render(RenderError::MissingResult { placeholder, has_result: false })) => {
            Ok(missing_result(&forward, bundle.fn_body.on_missing_result, &placeholder))
        }
        Err(why) => Ok(Prepared::Dead(DeadLetterReason::Unrenderable, why.to_string())),
    }
}

/// Whether something of the result would be sent that this compensation does not take from whoever
/// reported it. Then only a human decides, whatever the registration says of missing results.
fn needs_refused_result(
    entry: &UndoRow,
    bundle: &CompensationBundle,
    forward: &Forward,
) -> Result<bool, StepError> {
    if forward.result.is_none() || bundle.result_from.takes(forward.result_by) {
        return Ok(false);
    }
    let waiting = payload::read("", Some(&entry.result_templates))?;
    let is_filled_in = matches!(&waiting, Node::Object(members) if members.is_empty());
    Ok(!is_filled_in || bundle.fn_body.needs_result())
}

#[derive(Debug, thiserror::Error)]
enum NotRendered {
    #[error(transparent)]
    Render(#[from] RenderError),
    #[error("the compensation's arguments do not fit its schema: {0}")]
    Schema(String),
}

fn rendered(
    tx: &Tenant,
    session: &LockedSession,
    entry: &UndoRow,
    bundle: &CompensationBundle,
    args: &Node,
    result: Option<&Node>,
) -> Result<Result<RenderedCall, NotRendered>, StepError> {
    let stored = payload::read(&entry.args_text, entry.args_raw.as_deref())?;
    let pending = payload::read("", Some(&entry.result_templates))?;
    let pending = pending_from_node(&pending).ok_or_else(|| {
        StepError::Corrupt(format!("undo entry {}: result_templates", entry.undo_id))
    })?;
    let null_for_missing = bundle.fn_body.on_missing_result == OnMissingResult::Null;
    let comp = match complete(&stored, &pending, result, null_for_missing) {
        Ok(comp) => comp,
        Err(error) => return Ok(Err(error.into())),
    };
    if crate::guard!("walk.args_schema")
        && let Err(why) = bundle.check_args(tx, &comp)?
    {
        return Ok(Err(NotRendered::Schema(why)));
    }
    let context = Context {
        args,
        result,
        comp: &comp,
        session_id: session.id(),
        effect_id: entry.effect_id,
        undo_id: entry.undo_id,
    };
    Ok(bundle.fn_body.render(&context).map_err(NotRendered::from))
}

/// A template needs a result that does not exist.
fn missing_result(forward: &Forward, policy: OnMissingResult, placeholder: &str) -> Prepared {
    let dead = || {
        let why = format!("the compensation needs {placeholder}, and the call left no result");
        Prepared::Dead(DeadLetterReason::MissingResult, why)
    };
    match policy {
        OnMissingResult::Skip => Prepared::Skip(SkipReason::MissingResult),
        OnMissingResult::Auto if forward.state == EffectState::Failed => {
            Prepared::Skip(SkipReason::FailedWithoutResult)
        }
        // With `null` every missing value is there already; what else is missing is for a human.
        OnMissingResult::Auto | OnMissingResult::DeadLetter | OnMissingResult::Null => dead(),
    }
}

/// What is known of the attempt that an entry names: the newest stands in the effect's row.
async fn forward(
    tx: &mut Tenant,
    entry: &UndoRow,
    effect: &EffectRow,
) -> Result<Forward, StepError> {
    if entry.attempt != effect.attempt {
        return older(tx, entry).await;
    }
    let result = match (&effect.result_text, &effect.result_raw) {
        (None, None) => None,
        (text, raw) => Some(payload::read(text.as_deref().unwrap_or("null"), raw.as_deref())?),
    };
    let outcome = effect.outcome()?;
    let state = match effect.state()? {
        // A walk that began has left the state behind; what the call had come to is still there.
        EffectState::Compensating | EffectState::CompensationFailed | EffectState::Compensated => {
            match (&result, outcome) {
                (Some(_), _) => EffectState::Committed,
                (None, Some(_)) => EffectState::Failed,
                (None, None) => EffectState::Unknown,
            }
        }
        state => state,
    };
    let result = result.filter(|_| state == EffectState::Committed);
    Ok(Forward { state, outcome, result, result_by: effect.result_by()? })
}

#[derive(FromRow)]
struct OlderAttempt {
    state: String,
    outcome: Option<String>,
    result_text: Option<String>,
    result_raw: Option<Vec<u8>>,
}

async fn older(tx: &mut Tenant, entry: &UndoRow) -> Result<Forward, StepError> {
    let org_id = tx.org_id();
    let row: Option<OlderAttempt> = sqlx::query_as(
        "SELECT state, outcome, result_snapshot::text AS result_text, \
         result_snapshot_raw AS result_raw FROM undolog_effect_attempts \
         WHERE effect_id = $1 AND attempt = $2 AND org_id = $3",
    )
    .bind(entry.effect_id)
    .bind(entry.attempt)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?;
    let row = row.ok_or_else(|| {
        StepError::Corrupt(format!("effect {} has no attempt {}", entry.effect_id, entry.attempt))
    })?;
    let corrupt = |error: undolog_core::state::UnknownName| StepError::Corrupt(error.to_string());
    let state = EffectState::from_str(&row.state).map_err(corrupt)?;
    let outcome = row.outcome.as_deref().map(Outcome::from_str).transpose().map_err(corrupt)?;
    let result = match (&row.result_text, &row.result_raw) {
        (None, None) => None,
        (text, raw) => Some(payload::read(text.as_deref().unwrap_or("null"), raw.as_deref())?),
    };
    // A report that came after a newer attempt is kept beside the state that the attempt ended in.
    let state = if result.is_some() { EffectState::Committed } else { state };
    // Whose word it was is not kept with it.
    Ok(Forward { state, outcome, result, result_by: None })
}

/// The forward call's arguments.
async fn args(tx: &mut Tenant, effect: &EffectRow) -> Result<Node, StepError> {
    let corrupt = || StepError::Corrupt(format!("effect id {}", effect.effect_id));
    let (from, to) = executed_between(effect.effect_id).ok_or_else(corrupt)?;
    let org_id = tx.org_id();
    let (text, raw): (String, Option<Vec<u8>>) = sqlx::query_as(
        "SELECT args_snapshot::text, args_snapshot_raw FROM undolog_effect_log \
         WHERE effect_id = $1 AND executed_at >= $2 AND executed_at < $3 AND org_id = $4",
    )
    .bind(effect.effect_id)
    .bind(from)
    .bind(to)
    .bind(org_id)
    .fetch_one(tx.conn())
    .await?;
    payload::read(&text, raw.as_deref())
}
