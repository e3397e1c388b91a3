//! Which unknown calls are asked about now.

use sqlx::FromRow;
use undolog_core::{fn_body::RenderedCall, json::from_stored, probe::Probe};
use uuid::Uuid;

use super::{ANSWER_MS, PAUSE_MS, QUESTIONS_MAX, QUESTIONS_PER_RUN};
use crate::{effects::EffectRow, error::StepError, payload, pool::Store, tenant::Tenant};

/// A question that was counted and is to be asked.
#[derive(Debug, Clone, FromRow)]
pub struct Question {
    /// The session.
    pub session_id: Uuid,
    /// The effect.
    pub effect_id: Uuid,
    /// The attempt that is asked about.
    pub attempt: i32,
    /// The organisation's slug, for its secrets.
    pub org_slug: String,
    probe_text: String,
    args_text: String,
    args_raw: Option<Vec<u8>>,
}

impl Question {
    /// The probe and its call, or why it cannot be asked.
    ///
    /// # Errors
    /// A text for people: what is stored cannot be read, or cannot be filled in.
    pub fn prepare(&self) -> Result<(Probe, RenderedCall), String> {
        let node = from_stored(&self.probe_text, None).map_err(|error| error.to_string())?;
        let probe = Probe::parse(&node).map_err(|error| error.to_string())?;
        let args = payload::read(&self.args_text, self.args_raw.as_deref())
            .map_err(|error| error.to_string())?;
        let call = probe.render(&args, self.session_id, self.effect_id);
        let call = call.map_err(|error| error.to_string())?;
        Ok((probe, call))
    }
}

/// Organisations with an unknown call that may be asked about.
///
/// # Errors
/// The database could not be reached.
pub async fn due_orgs(store: &Store) -> Result<Vec<Uuid>, StepError> {
    crate::sweeps::due_orgs(store, "probe", PAUSE_MS).await
}

/// Takes an organisation's due questions, and counts them before they are asked.
///
/// # Errors
/// The database could not be reached.
pub async fn claim(store: &Store, org_id: Uuid) -> Result<Vec<Question>, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let questions = sqlx::query_as(include_str!("../../sql/probe_claim.sql"))
        .bind(org_id)
        .bind(QUESTIONS_MAX)
        .bind(PAUSE_MS)
        .bind(QUESTIONS_PER_RUN)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    Ok(questions)
}

/// What asking may still bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probing {
    /// The tool has no probe.
    None,
    /// A question will be asked, or its answer is on its way.
    Open,
    /// Every question was asked.
    Over,
}

/// Whether an unknown effect is still asked about.
pub(crate) async fn probing(tx: &mut Tenant, effect: &EffectRow) -> Result<Probing, StepError> {
    let org_id = tx.org_id();
    let open: Option<bool> = sqlx::query_scalar(include_str!("../../sql/probe_open.sql"))
        .bind(effect.effect_id)
        .bind(effect.executed_at)
        .bind(org_id)
        .bind(QUESTIONS_MAX)
        .bind(ANSWER_MS)
        .fetch_optional(tx.conn())
        .await?;
    Ok(match open {
        None => Probing::None,
        Some(true) => Probing::Open,
        Some(false) => Probing::Over,
    })
}
