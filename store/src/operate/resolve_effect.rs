//! What an operator says about a call of which nobody knew whether it happened.

use chrono::Duration;
use serde_json::json;
use undolog_core::{
    Tier,
    json::Node,
    limits,
    reason::{Reason, Refusal},
    role::Rpc,
    state::{
        EffectEvent, EffectState, Outcome, ResultBy, SessionState, SkipReason, UndoEvent, UndoState,
    },
};
use uuid::Uuid;

use super::{go_on, require_role, require_text, resolve::undone_by_hand};
use crate::{
    dead_letters,
    effects::{self, EffectRow},
    error::{Decided, StepError},
    payload,
    report::{
        evidence::{self, Evidence},
        late,
    },
    rollback,
    session::LockedSession,
    step::{Caller, Step},
    tenant::Tenant,
    undo::{self, UndoRow},
};

/// What is said about the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// It happened, with this output (JSON; empty means `null`).
    Committed {
        /// The output.
        output: Vec<u8>,
    },
    /// It did not happen.
    NotApplied,
    /// It may have happened, and was undone by hand; only for a compensable call.
    Undone,
    /// Its compensation succeeded, and has not undone it: it is called once more, under a new key.
    NotUndone,
}

/// Settles an unknown outcome.
#[derive(Debug, Clone)]
pub struct ResolveEffect {
    /// Who says so.
    pub caller: Caller,
    /// The session.
    pub session_id: Uuid,
    /// The effect.
    pub effect_id: Uuid,
    /// What is said.
    pub resolve: Resolution,
    /// How it is known; required.
    pub note: String,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectResolved {
    /// The effect's state.
    pub effect_state: EffectState,
    /// The session's state.
    pub session_state: SessionState,
}

impl Step for ResolveEffect {
    type Reply = EffectResolved;
    const NAME: &'static str = "resolve_effect";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        Some(self.session_id)
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<EffectResolved>, StepError> {
        require_role(&self.caller, Rpc::ResolveEffect)?;
        require_text("note", &self.note)?;
        let mut session = LockedSession::require(tx, self.session_id, &self.caller).await?;
        let mut effect = effects::require(tx, &session, self.effect_id).await?;
        match self.resolve {
            Resolution::NotUndone => refuse_not_compensated(&effect)?,
            _ => {
                self.give_up_grant(tx, &mut session, &mut effect).await?;
                refuse_known(&session, &effect)?;
            }
        }
        match &self.resolve {
            Resolution::Committed { output } => {
                let output = checked_output(output)?;
                effect = happened(tx, &mut session, effect, output, self.said()).await?;
            }
            Resolution::NotApplied => {
                did_not_happen(tx, &mut session, &mut effect, self.said()).await?;
            }
            Resolution::Undone => self.undone(tx, &mut session, &mut effect).await?,
            Resolution::NotUndone => self.reopen(tx, &mut session, &mut effect).await?,
        }
        let resolved =
            EffectResolved { effect_state: effect.state()?, session_state: session.state() };
        session.save(tx).await?;
        Ok(Ok(resolved))
    }
}

/// Only what nobody knows can be resolved; whoever comes second hears what is known.
fn refuse_known(session: &LockedSession, effect: &EffectRow) -> Result<(), StepError> {
    let reason = match effect.state()? {
        EffectState::Unknown => return Ok(()),
        EffectState::Failed if effect.outcome()? == Some(Outcome::MaybeApplied) => return Ok(()),
        _ if !crate::guard!("operate.known") => return Ok(()),
        EffectState::Pending | EffectState::Rejected | EffectState::Replayed => Reason::NotGranted,
        EffectState::Approved if effect.granted_at.is_none() => Reason::NotGranted,
        EffectState::Executing | EffectState::Approved => Reason::InProgress,
        EffectState::Failed | EffectState::Committed => Reason::ResultConflict,
        EffectState::Compensating => Reason::UndoRunning,
        EffectState::Compensated => Reason::AlreadyUndone,
        EffectState::CompensationFailed => Reason::UndoFailed,
    };
    Err(Refusal::new(reason)
        .with("session_id", session.id())
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)
        .with("operator_said", effect.operator_said.as_deref().unwrap_or_default())
        .into())
}

/// Only what counts as undone can turn out not to be.
fn refuse_not_compensated(effect: &EffectRow) -> Result<(), StepError> {
    if effect.state()? == EffectState::Compensated || !crate::guard!("operate.reopen") {
        return Ok(());
    }
    let why = format!(
        "the call is {}: only one that counts as compensated is undone anew, {}",
        effect.state, "any other is settled by its dead letter or by its outcome"
    );
    Err(Refusal::because(Reason::InvalidArgument, why)
        .with("effect_id", effect.effect_id)
        .with("effect_state", &effect.state)
        .into())
}

/// Who says what became of a call, and how it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said<'a> {
    /// An operator's principal, or the system's name of a probe.
    pub(crate) actor: &'a str,
    /// For people.
    pub(crate) note: &'a str,
    /// A human's word: evidence that comes later does not overrule it, it contradicts it.
    pub(crate) by_operator: bool,
}

/// The call happened: the same as its caller's own Commit, whenever it comes. Writes everything but
/// the session's own row.
pub(crate) async fn happened(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: EffectRow,
    (output, bytes): (Node, Vec<u8>),
    said: Said<'_>,
) -> Result<EffectRow, StepError> {
    let evidence = Evidence {
        by: if said.by_operator { ResultBy::Operator } else { ResultBy::Probe },
        actor: said.actor,
        closed_by: said.actor,
        event: EffectEvent::ResolvedCommitted,
        operator_said: said.by_operator.then_some("committed"),
        note: Some(said.note),
        output,
        bytes,
        duration_ms: None,
    };
    let attempt = effect.attempt;
    Ok(evidence::record(tx, session, effect, attempt, evidence).await?.effect)
}

/// The call never happened: nothing is undone, and the same call may run again. Writes everything
/// but the session's own row.
pub(crate) async fn did_not_happen(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    said: Said<'_>,
) -> Result<(), StepError> {
    let mut entry = undo::of_attempt(tx, effect.effect_id, effect.attempt).await?;
    let detail = json!({"note": said.note});
    effect.apply(session, EffectEvent::ResolvedNotApplied, said.actor, detail)?;
    effect.outcome = Some(Outcome::NotApplied.as_str().to_owned());
    effect.operator_said = said.by_operator.then(|| "not_applied".to_owned());
    effect.failed_at = effect.failed_at.or(Some(session.t()));
    effect.end_grant();
    effects::save(tx, effect).await?;
    if let Some(entry) = &mut entry
        && matches!(entry.state()?, UndoState::Pending | UndoState::Failed)
    {
        entry.skip(session, SkipReason::NotApplied, said.actor)?;
        undo::save(tx, entry).await?;
    }
    close_letters(tx, session, effect, entry.as_ref(), "not_applied", said).await?;
    go_on::without_obstacle(tx, session, said.actor).await
}

async fn close_letters(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &EffectRow,
    entry: Option<&UndoRow>,
    resolution: &str,
    said: Said<'_>,
) -> Result<(), StepError> {
    for letter in late::letters(tx, effect.effect_id, entry).await? {
        let (id, note) = (letter.dead_letter_id, Some(said.note));
        dead_letters::close(tx, session, id, said.actor, resolution, note).await?;
    }
    Ok(())
}

fn checked_output(output: &[u8]) -> Result<(Node, Vec<u8>), StepError> {
    if output.len() > limits::RESULT_BYTES_MAX {
        return Err(Refusal::because(Reason::LimitExceeded, "the result is too large")
            .with("limit_bytes", limits::RESULT_BYTES_MAX)
            .into());
    }
    payload::parse_output(output)
        .map_err(|error| StepError::refuse(Reason::InvalidArgument, format!("result: {error}")))
}

impl ResolveEffect {
    fn said(&self) -> Said<'_> {
        Said { actor: &self.caller.principal, note: &self.note, by_operator: true }
    }

    /// A grant whose own lease is past counts no more once a human speaks, also while nothing
    /// expires by itself because a service of ours is away.
    async fn give_up_grant(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &mut EffectRow,
    ) -> Result<(), StepError> {
        let end = effect.lease_renewed_at.zip(effect.lease_ms);
        let is_past = end.is_some_and(|(at, ms)| at + Duration::milliseconds(ms) < session.now());
        if effect.has_live_grant()? && is_past {
            effect.lose(session, EffectEvent::LeaseLost, &self.caller.principal)?;
            effects::save(tx, effect).await?;
        }
        Ok(())
    }

    /// Its compensation answered that it was undone, and it was not.
    async fn reopen(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &mut EffectRow,
    ) -> Result<(), StepError> {
        let actor = self.caller.principal.as_str();
        let entry = undo::of_attempt(tx, effect.effect_id, effect.attempt).await?;
        let entry = entry.ok_or_else(|| {
            StepError::Corrupt(format!("effect {}: no entry to reopen", effect.effect_id))
        })?;
        let mut again = entry.again_on_top(session, Uuid::now_v7());
        // The round says that a human wants it called, whatever is known of the call.
        again.round = entry.round + 1;
        undo::insert(tx, session, &again, actor).await?;
        undo::save(tx, &again).await?;
        let detail = json!({"note": self.note, "undo_id": again.undo_id});
        effect.apply(session, EffectEvent::CompensationReopened, actor, detail)?;
        effects::save(tx, effect).await?;
        close_letters(tx, session, effect, Some(&entry), "reopened", self.said()).await?;
        rollback::for_entry(tx, session, again.stack_position, actor).await
    }

    /// A human has undone whatever it was.
    async fn undone(
        &self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        effect: &mut EffectRow,
    ) -> Result<(), StepError> {
        if effect.tier()? != Tier::Compensable && crate::guard!("operate.undone") {
            let why = "an irreversible call cannot be undone: say whether it happened";
            return Err(Refusal::because(Reason::InvalidArgument, why)
                .with("effect_id", effect.effect_id)
                .into());
        }
        let actor = self.caller.principal.as_str();
        let mut entry = undo::of_attempt(tx, effect.effect_id, effect.attempt).await?;
        if let Some(entry) = &mut entry
            && entry.state()? != UndoState::Compensated
        {
            entry.apply(session, UndoEvent::Resolved, actor, json!({"note": self.note}))?;
            undo::save(tx, entry).await?;
        }
        effect.end_grant();
        undone_by_hand(tx, session, effect, actor).await?;
        close_letters(tx, session, effect, entry.as_ref(), "undone", self.said()).await?;
        go_on::without_obstacle(tx, session, actor).await
    }
}
