//! Approval requests as they are shown, listed and waited for.

use std::str::FromStr as _;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use undolog_core::{limits::PAGE_MAX, reason::Reason, state::ApprovalState};
use uuid::Uuid;

use super::{
    only_of,
    page::{Page, Paging, Until, page_bytes, read_max, refused, time_of},
};
use crate::{error::StepError, payload, pool::Store, step::Caller, tenant::Tenant};

/// An approval request as it is shown.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Approval")]
pub struct ApprovalView {
    pub approval_id: Uuid,
    pub session_id: Uuid,
    pub effect_id: Uuid,
    pub tool_name: String,
    pub tool_version: String,
    pub state: ApprovalState,
    pub irreversibility_reason: String,
    pub risk_tags: Vec<String>,
    pub estimated_impact: Option<String>,
    /// JSON, as it was asked.
    pub proposed_args: Vec<u8>,
    /// JSON, as it was approved or is voted on; empty: none.
    pub approved_args: Vec<u8>,
    /// JSON, as it was given.
    pub agent_context: Vec<u8>,
    pub created_at: DateTime<Utc>,
    pub timeout_at: DateTime<Utc>,
    pub auto_approve_on_timeout: bool,
    pub resolved_at: Option<DateTime<Utc>>,
    pub resolved_by: Option<String>,
    pub quorum: i32,
    pub votes: i64,
    pub granted_at: Option<DateTime<Utc>>,
    pub voided_at: Option<DateTime<Utc>>,
    pub effect_state: String,
    pub requested_by: String,
    pub requester_may_approve: bool,
}

impl ApprovalView {
    /// Where it stands.
    #[must_use]
    pub fn mark(&self) -> ApprovalMark {
        ApprovalMark {
            approval_id: self.approval_id,
            effect_id: self.effect_id,
            state: self.state,
            is_granted: self.granted_at.is_some(),
            is_voided: self.voided_at.is_some(),
            votes: self.votes,
        }
    }
}

/// Where an approval request stands; another value means that something happened to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApprovalMark {
    /// The request.
    pub approval_id: Uuid,
    /// Its effect.
    pub effect_id: Uuid,
    /// Its state.
    pub state: ApprovalState,
    /// Its one grant was given.
    pub is_granted: bool,
    /// It was given, and then revoked, lapsed or taken by a rollback.
    pub is_voided: bool,
    /// Votes for what is approved now.
    pub votes: i64,
}

impl ApprovalMark {
    /// Nothing can happen to it any more.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self.state {
            ApprovalState::Pending => false,
            ApprovalState::Rejected | ApprovalState::TimedOut => true,
            ApprovalState::Approved | ApprovalState::AutoApproved => {
                self.is_granted || self.is_voided
            }
        }
    }
}

/// One decision of the audit trail.
#[derive(Debug, Clone, FromRow)]
#[expect(missing_docs, reason = "the fields are those of the wire's ApprovalEvent")]
pub struct ApprovalEventView {
    pub event_id: Uuid,
    pub action: String,
    pub actor: String,
    pub claimed_actor: Option<String>,
    pub note: Option<String>,
    pub args_diff: Option<String>,
    /// The edit is too large to stand here.
    pub diff_left_out: bool,
    pub occurred_at: DateTime<Utc>,
    pub actor_ip: Option<String>,
}

#[derive(Debug, FromRow)]
pub(super) struct EventShown {
    #[sqlx(flatten)]
    pub(super) event: ApprovalEventView,
    matched: i64,
}

#[derive(Debug, FromRow)]
struct ApprovalShown {
    approval_id: Uuid,
    session_id: Uuid,
    effect_id: Uuid,
    tool_name: String,
    tool_version: String,
    state: String,
    irreversibility_reason: String,
    risk_tags: Vec<String>,
    estimated_impact: Option<String>,
    proposed_text: String,
    proposed_raw: Option<Vec<u8>>,
    approved_text: Option<String>,
    approved_raw: Option<Vec<u8>>,
    context_text: String,
    context_raw: Option<Vec<u8>>,
    created_at: DateTime<Utc>,
    timeout_at: DateTime<Utc>,
    auto_approve_on_timeout: bool,
    resolved_at: Option<DateTime<Utc>>,
    resolved_by: Option<String>,
    quorum: i32,
    granted_at: Option<DateTime<Utc>>,
    voided_at: Option<DateTime<Utc>>,
    effect_state: String,
    requested_by: String,
    requester_may_approve: bool,
    ballots: i64,
    matched: i64,
}

impl ApprovalShown {
    fn view(self) -> Result<ApprovalView, StepError> {
        let state = state_of(&self.state)?;
        let approved_args = match &self.approved_text {
            Some(text) => payload::text(text, self.approved_raw.as_deref())?,
            None => Vec::new(),
        };
        Ok(ApprovalView {
            approval_id: self.approval_id,
            session_id: self.session_id,
            effect_id: self.effect_id,
            tool_name: self.tool_name,
            tool_version: self.tool_version,
            state,
            irreversibility_reason: self.irreversibility_reason,
            risk_tags: self.risk_tags,
            estimated_impact: self.estimated_impact,
            proposed_args: payload::text(&self.proposed_text, self.proposed_raw.as_deref())?,
            approved_args,
            agent_context: payload::text(&self.context_text, self.context_raw.as_deref())?,
            created_at: self.created_at,
            timeout_at: self.timeout_at,
            auto_approve_on_timeout: self.auto_approve_on_timeout,
            resolved_at: self.resolved_at,
            resolved_by: self.resolved_by,
            quorum: self.quorum,
            votes: votes(self.quorum, state, self.ballots),
            granted_at: self.granted_at,
            voided_at: self.voided_at,
            effect_state: self.effect_state,
            requested_by: self.requested_by,
            requester_may_approve: self.requester_may_approve,
        })
    }
}

#[derive(Debug, FromRow)]
struct MarkRow {
    approval_id: Uuid,
    effect_id: Uuid,
    state: String,
    is_granted: bool,
    is_voided: bool,
    quorum: i32,
    ballots: i64,
}

fn state_of(text: &str) -> Result<ApprovalState, StepError> {
    ApprovalState::from_str(text).map_err(|error| StepError::Corrupt(error.to_string()))
}

/// Ballots are counted for a quorum only; without one the approval itself is the vote.
fn votes(quorum: i32, state: ApprovalState, ballots: i64) -> i64 {
    if quorum > 1 { ballots } else { i64::from(state == ApprovalState::Approved) }
}

/// Which requests are listed.
#[derive(Debug, Clone, Default)]
pub struct ApprovalFilter {
    /// Only these states; empty: those that nobody has decided.
    pub states: Vec<String>,
    /// Only of this session.
    pub session_id: Option<Uuid>,
}

/// Approval requests, the newest first. An agent sees those of its own sessions.
pub async fn list_approvals(
    store: &Store,
    caller: &Caller,
    filter: &ApprovalFilter,
    paging: &Paging,
) -> Result<Page<ApprovalView>, StepError> {
    for state in &filter.states {
        ApprovalState::from_str(state)
            .map_err(|error| StepError::refuse(Reason::InvalidArgument, error.to_string()))?;
    }
    let pending = [ApprovalState::Pending.as_str().to_owned()];
    let states = if filter.states.is_empty() { pending.as_slice() } else { &filter.states };
    let limit = paging.rows()?;
    let (micros, approval_id) = paging.after::<(i64, Uuid)>("approvals")?.unzip();
    let before = micros.map(time_of).transpose()?;
    let principal = only_of(caller);
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    // Whose session it is stands in no index of requests.
    let until: Option<Until> = if principal.is_some() && filter.session_id.is_none() {
        sqlx::query_as(include_str!("../../sql/approval_list_until.sql"))
            .bind(caller.org_id)
            .bind(states)
            .bind(before)
            .bind(approval_id)
            .bind(read_max(states.len()))
            .fetch_optional(tx.conn())
            .await?
    } else {
        None
    };
    let (until_at, until_id) = Until::bound(until);
    let rows: Vec<ApprovalShown> = sqlx::query_as(include_str!("../../sql/approval_list.sql"))
        .bind(caller.org_id)
        .bind(principal)
        .bind(states)
        .bind(filter.session_id)
        .bind(before)
        .bind(approval_id)
        .bind(limit + 1)
        .bind(page_bytes())
        .bind(until_at)
        .bind(until_id)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(ApprovalShown::view).collect::<Result<Vec<_>, _>>()?;
    let key = |view: &ApprovalView| (view.created_at.timestamp_micros(), view.approval_id);
    Page::cut_at("approvals", views, limit, matched, key, until.map(Until::key))
}

/// One request, as it stands.
pub async fn show_approval(
    store: &Store,
    caller: &Caller,
    approval_id: Uuid,
) -> Result<ApprovalView, StepError> {
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let view = read(&mut tx, caller, approval_id).await;
    tx.commit().await?;
    view
}

/// Notes and names of the decisions of a page.
const TEXT_BYTES_MAX: i64 = 512 * 1024;
/// Edits that the decisions of a page show, beside a request of the largest size.
const DIFF_BYTES_MAX: i64 = 768 * 1024;

/// One request with a page of the decisions about it, the first one first.
pub async fn get_approval(
    store: &Store,
    caller: &Caller,
    approval_id: Uuid,
    events_token: &str,
) -> Result<(ApprovalView, Page<ApprovalEventView>), StepError> {
    let paging = Paging { size: PAGE_MAX, token: events_token.to_owned() };
    let key = match paging.after::<(Uuid, i64, Uuid)>("approval_events")? {
        Some((of, _, _)) if of != approval_id => return Err(refused()),
        key => key,
    };
    let after = key.map(|(_, micros, _)| time_of(micros)).transpose()?;
    let diff_bytes = if crate::guard!("read.diffs_left_out") { DIFF_BYTES_MAX } else { i64::MAX };
    let limit = paging.rows()?;
    let mut tx = Tenant::begin(store, caller.org_id).await?;
    let view = read(&mut tx, caller, approval_id).await;
    let rows: Vec<EventShown> = sqlx::query_as(include_str!("../../sql/approval_events.sql"))
        .bind(approval_id)
        .bind(caller.org_id)
        .bind(after)
        .bind(key.map(|(_, _, event_id)| event_id))
        .bind(limit + 1)
        .bind(TEXT_BYTES_MAX)
        .bind(diff_bytes)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let matched = rows.first().map_or(0, |row| row.matched);
    let views = rows.into_iter().map(|row| row.event).collect();
    let events = Page::cut("approval_events", views, limit, matched, |row: &ApprovalEventView| {
        (approval_id, row.occurred_at.timestamp_micros(), row.event_id)
    })?;
    Ok((view?, events))
}

async fn read(
    tx: &mut Tenant,
    caller: &Caller,
    approval_id: Uuid,
) -> Result<ApprovalView, StepError> {
    let row: Option<ApprovalShown> = sqlx::query_as(include_str!("../../sql/approval_get.sql"))
        .bind(caller.org_id)
        .bind(approval_id)
        .bind(only_of(caller))
        .fetch_optional(tx.conn())
        .await?;
    row.map(ApprovalShown::view).transpose()?.ok_or_else(|| {
        let why = format!("there is no approval request {approval_id}");
        StepError::refuse(Reason::ApprovalNotFound, why)
    })
}

/// Where these requests of one organisation stand. Ids that are none of its are left out.
pub async fn approval_marks(
    store: &Store,
    org_id: Uuid,
    approval_ids: &[Uuid],
) -> Result<Vec<ApprovalMark>, StepError> {
    let mut tx = Tenant::begin(store, org_id).await?;
    let rows: Vec<MarkRow> = sqlx::query_as(include_str!("../../sql/approval_marks.sql"))
        .bind(org_id)
        .bind(approval_ids)
        .fetch_all(tx.conn())
        .await?;
    tx.commit().await?;
    let mark = |row: MarkRow| {
        let state = state_of(&row.state)?;
        Ok(ApprovalMark {
            approval_id: row.approval_id,
            effect_id: row.effect_id,
            state,
            is_granted: row.is_granted,
            is_voided: row.is_voided,
            votes: votes(row.quorum, state, row.ballots),
        })
    };
    rows.into_iter().map(mark).collect()
}
