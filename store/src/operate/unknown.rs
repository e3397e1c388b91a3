//! Effects of which nobody knows whether they happened.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::role::Rpc;
use uuid::Uuid;

use super::{filter::wanted, require_role};
use crate::{
    error::StepError,
    payload::refuse_nul,
    pool::Store,
    read::{
        EffectView, Page, Paging,
        effects::EffectShown,
        page::{Until, page_bytes, read_max, time_of},
    },
    step::Caller,
    tenant::Tenant,
};

/// Which uncertain effects are listed.
#[derive(Debug, Clone, Default)]
pub struct UnknownFilter {
    /// Of this session.
    pub session_id: Option<Uuid>,
    /// Of this tool; empty: of every one.
    pub tool_name: String,
    /// Only this one.
    pub effect_id: Option<Uuid>,
}

/// An effect of which nobody knows whether it happened, with what is known: its state is `unknown`,
/// or `failed` with the outcome `maybe_applied`.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's UnknownEffect")]
pub struct UnknownEffect {
    pub effect: EffectView,
    pub session_state: String,
    /// Since when nobody knows.
    pub lost_at: DateTime<Utc>,
    pub granted_at: Option<DateTime<Utc>>,
    /// `happened`, `did_not_happen` or `cannot_tell`.
    pub probe_answer: Option<String>,
    pub probe_error: Option<String>,
    pub probe_count: i32,
    /// The tool's registration has a question to ask.
    pub has_probe: bool,
}

#[derive(Debug, FromRow)]
struct UnknownShown {
    #[sqlx(flatten)]
    effect: EffectShown,
    session_state: String,
    lost_at: DateTime<Utc>,
    granted_at: Option<DateTime<Utc>>,
    probe_answer: Option<String>,
    probe_error: Option<String>,
    probe_count: i32,
    has_probe: bool,
}

impl UnknownShown {
    fn view(self) -> Result<UnknownEffect, StepError> {
        Ok(UnknownEffect {
            effect: self.effect.view()?,
            session_state: self.session_state,
            lost_at: self.lost_at,
            granted_at: self.granted_at,
            probe_answer: self.probe_answer,
            probe_error: self.probe_error,
            probe_count: self.probe_count,
            has_probe: self.has_probe,
        })
    }
}

/// Effects of which nobody knows whether they happened, the longest unknown first.
///
/// # Errors
/// The filter or the page is refused, or the database could not be reached.
pub async fn list_unknown(
    store: &Store,
    caller: &Caller,
    filter: &UnknownFilter,
    paging: &Paging,
) -> Result<Page<UnknownEffect>, StepError> {
    require_role(caller, Rpc::ListUnknown)?;
    refuse_nul("tool_name", &filter.tool_name)?;
    let limit = paging.rows()?;
    let (micros, effect_id) = paging.after::<(i64, Uuid)>("unknown")?.unzip();
    let after = micros.map(time_of).transpose()?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let until: Option<Until> = if filter.session_id.is_none() && filter.effect_id.is_none() {
        sqlx::query_as(include_str!("../../sql/operate_unknown_until.sql"))
            .bind(caller.org_id)
            .bind(after)
            .bind(effect_id)
            .bind(read_max(1))
            .fetch_optional(tx.conn())
            .await?
    } else {
        None
    };
    let (until_at, until_id) = Until::bound(until);
    let rows: Vec<UnknownShown> = sqlx::query_as(include_str!("../../sql/operate_unknown.sql"))
        .bind(caller.org_id)
        .bind(filter.session_id)
        .bind(wanted(&filter.tool_name))
        .bind(after)
        .bind(effect_id)
        .bind(limit + 1)
        .bind(page_bytes())
        .bind(filter.effect_id)
        .bind(until_at)
        .bind(until_id)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.effect.matched);
    let views = rows.into_iter().map(UnknownShown::view).collect::<Result<Vec<_>, _>>()?;
    let key = |view: &UnknownEffect| (view.lost_at.timestamp_micros(), view.effect.effect_id);
    Page::cut_at("unknown", views, limit, matched, key, until.map(Until::key))
}
