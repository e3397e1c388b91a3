//! Approval requests of irreversible calls, and what humans decide about them.

mod approve;
mod lapse;
mod policy;
mod reject;
mod revoke;
mod timeout;
mod vote;

use std::{net::IpAddr, str::FromStr as _};

pub use approve::{Approve, Approved};
use chrono::{DateTime, Utc};
pub use lapse::LapseApproval;
pub(crate) use lapse::lapse;
pub(crate) use policy::policy;
pub use reject::Reject;
pub use revoke::Revoke;
use serde_json::json;
use sqlx::FromRow;
pub use timeout::TimeOut;
use undolog_core::{
    json::Node,
    limits::APPROVAL_LAPSE_SECONDS,
    reason::{Reason, Refusal},
    state::{
        ApprovalEvent, ApprovalState, EffectEvent, EffectState, Subject, approval::transition,
    },
};
use uuid::Uuid;

use crate::{
    effects::{self, EffectRow},
    error::StepError,
    payload,
    session::{LockedSession, one_row},
    step::Caller,
    tenant::Tenant,
};

/// An approval request.
#[derive(Debug, Clone, PartialEq, FromRow)]
#[expect(missing_docs, reason = "the columns are described in the schema")]
pub struct ApprovalRow {
    pub approval_request_id: Uuid,
    pub session_id: Uuid,
    pub effect_id: Uuid,
    pub attempt: i32,
    pub tool_name: String,
    pub state: String,
    pub timeout_at: DateTime<Utc>,
    pub auto_approve_on_timeout: bool,
    pub resolved_at: Option<DateTime<Utc>>,
    pub resolved_by: Option<String>,
    pub args_digest: Option<Vec<u8>>,
    pub granted_at: Option<DateTime<Utc>>,
    pub voided_at: Option<DateTime<Utc>>,
    pub proposed_text: String,
    pub proposed_raw: Option<Vec<u8>>,
    pub approved_text: Option<String>,
    pub approved_raw: Option<Vec<u8>>,
    pub created_at: DateTime<Utc>,
    pub risk_tags: Vec<String>,
    pub quorum: i32,
    pub requester_may_approve: bool,
    pub requested_by: String,
}

const COLUMNS: &str = "approval_request_id, session_id, effect_id, attempt, tool_name, \
    state::text AS state, timeout_at, auto_approve_on_timeout, resolved_at, resolved_by, \
    args_digest, granted_at, voided_at, proposed_args::text AS proposed_text, \
    proposed_args_raw AS proposed_raw, approved_args::text AS approved_text, \
    approved_args_raw AS approved_raw, created_at, risk_tags, quorum, requester_may_approve, \
    requested_by";

/// One line of the audit trail.
#[derive(Debug, Clone, Default)]
pub struct AuditLine<'a> {
    /// `approve`, `reject`, `modify` or `timeout`.
    pub action: &'a str,
    /// Who decided, from the key.
    pub actor: &'a str,
    /// The name that the request claimed.
    pub claimed_actor: Option<&'a str>,
    /// A note for people.
    pub note: Option<&'a str>,
    /// The edit, as RFC 6902 in JSON.
    pub args_diff: Option<String>,
    /// Where the decision came from.
    pub actor_ip: Option<IpAddr>,
}

impl ApprovalRow {
    /// The request's id.
    pub fn id(&self) -> Uuid {
        self.approval_request_id
    }

    /// The state as the core knows it.
    pub fn state(&self) -> Result<ApprovalState, StepError> {
        ApprovalState::from_str(&self.state).map_err(|e| StepError::Corrupt(e.to_string()))
    }

    /// The request still stands for this effect: undecided, or decided and not spent.
    pub fn is_open_for(&self, effect: &EffectRow) -> Result<bool, StepError> {
        let wanted = match self.state()? {
            ApprovalState::Pending => EffectState::Pending,
            ApprovalState::Approved | ApprovalState::AutoApproved => EffectState::Approved,
            ApprovalState::Rejected | ApprovalState::TimedOut => return Ok(false),
        };
        Ok(self.attempt == effect.attempt && effect.state()? == wanted && self.granted_at.is_none())
    }

    /// The proposed arguments.
    pub fn proposed(&self) -> Result<Node, StepError> {
        payload::read(&self.proposed_text, self.proposed_raw.as_deref())
    }

    /// The approved arguments.
    pub fn approved(&self) -> Result<Option<Node>, StepError> {
        let text = self.approved_text.as_deref();
        text.map(|text| payload::read(text, self.approved_raw.as_deref())).transpose()
    }

    /// Moves the request, records it and writes it. A decision also gets its audit line.
    pub async fn resolve(
        &mut self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        event: ApprovalEvent,
        actor: &str,
        note: Option<&str>,
    ) -> Result<(), StepError> {
        let was_pending = self.state()? == ApprovalState::Pending;
        self.apply(session, event, actor)?;
        if was_pending {
            self.resolved_at = Some(session.now());
            self.resolved_by = Some(actor.to_owned());
            let action = if event == ApprovalEvent::TimedOut { "timeout" } else { "reject" };
            let line = AuditLine { action, actor, note, ..AuditLine::default() };
            audit(tx, session, self.id(), &line).await?;
        }
        if !was_pending {
            self.voided_at = Some(session.now());
        }
        announce(tx, self.effect_id).await?;
        self.save(tx).await
    }

    fn apply(
        &mut self,
        session: &mut LockedSession,
        event: ApprovalEvent,
        actor: &str,
    ) -> Result<(), StepError> {
        let from = self.state()?;
        let to = transition(Some(from), event).ok_or_else(|| {
            StepError::Corrupt(format!("approval {}: {event} from {from}", self.id()))
        })?;
        session.record(
            Subject::Approval,
            self.id(),
            event.as_str(),
            Some(from.as_str()),
            to.as_str(),
            Some(self.attempt),
            actor,
            json!({"effect_id": self.effect_id}),
        );
        self.state = to.as_str().to_owned();
        Ok(())
    }

    /// Was it given so long ago, unspent, that it counts no more? By the one predicate of every
    /// expiry.
    pub(crate) async fn has_lapsed(
        &self,
        tx: &mut Tenant,
        session: &LockedSession,
    ) -> Result<bool, StepError> {
        if !self.state()?.is_approved() || self.granted_at.is_some() {
            return Ok(false);
        }
        let lapse_ms = i64::from(APPROVAL_LAPSE_SECONDS) * 1000;
        is_over(tx, session, self.resolved_at, lapse_ms).await
    }

    /// Spends the approval: its one grant was given.
    pub async fn spend(
        &mut self,
        tx: &mut Tenant,
        session: &mut LockedSession,
        actor: &str,
    ) -> Result<(), StepError> {
        self.apply(session, ApprovalEvent::Spent, actor)?;
        self.granted_at = Some(session.now());
        self.save(tx).await
    }

    async fn save(&self, tx: &mut Tenant) -> Result<(), StepError> {
        let org_id = tx.org_id();
        let done = sqlx::query(include_str!("../../sql/approval_save.sql"))
            .bind(self.approval_request_id)
            .bind(org_id)
            .bind(&self.state)
            .bind(self.resolved_at)
            .bind(&self.resolved_by)
            .bind(&self.args_digest)
            .bind(self.granted_at)
            .bind(&self.approved_text)
            .bind(&self.approved_raw)
            .bind(self.voided_at)
            .execute(tx.conn())
            .await?;
        one_row(done.rows_affected(), "approval request")
    }

    /// The refusal of a decision that came second.
    fn already_resolved(&self) -> Refusal {
        Refusal::new(Reason::ApprovalAlreadyResolved)
            .with("approval_id", self.id())
            .with("state", &self.state)
            .with("resolved_by", self.resolved_by.as_deref().unwrap_or_default())
    }
}

/// The one predicate of every expiry, for a time that stands in a request.
async fn is_over(
    tx: &mut Tenant,
    session: &LockedSession,
    since: Option<DateTime<Utc>>,
    lease_ms: i64,
) -> Result<bool, StepError> {
    Ok(sqlx::query_scalar("SELECT COALESCE(undolog_lease_over($1, $2, $3, $4), false)")
        .bind(since)
        .bind(lease_ms)
        .bind(session.row.via_proxy)
        .bind(session.now())
        .fetch_one(tx.conn())
        .await?)
}

/// Whether nobody can decide about a request any more and its policy does. A window ends by itself
/// only while our service runs; and one that ended while people could not decide is held for them,
/// if the policy would approve it.
async fn is_due(
    tx: &mut Tenant,
    session: &LockedSession,
    approval: &ApprovalRow,
) -> Result<bool, StepError> {
    if session.now() < approval.timeout_at {
        return Ok(false);
    }
    let org_id = tx.org_id();
    let (is_over, is_held): (bool, bool) = sqlx::query_as(
        "SELECT undolog_lease_over($2, 0, $3, $4), $5 AND NOT o.never_auto_approve_tags && $6 \
         AND undolog_approval_is_held($2, $3, $4) FROM undolog_orgs o WHERE o.org_id = $1",
    )
    .bind(org_id)
    .bind(approval.timeout_at)
    .bind(session.row.via_proxy)
    .bind(session.now())
    .bind(approval.auto_approve_on_timeout)
    .bind(&approval.risk_tags)
    .fetch_one(tx.conn())
    .await?;
    Ok(is_over && !(is_held && crate::guard!("approvals.after_outage")))
}

/// Takes a request away before its call was granted: nobody decides about it any more. Answers
/// whether it was pending; the session's count of those is the caller's.
pub(crate) async fn void(
    tx: &mut Tenant,
    session: &mut LockedSession,
    effect: &mut EffectRow,
    approval: &mut ApprovalRow,
    actor: &str,
) -> Result<bool, StepError> {
    effect.apply(session, EffectEvent::Voided, actor, json!({}))?;
    effect.rejected_by = Some("rollback".to_owned());
    effects::save(tx, effect).await?;
    let was_pending = approval.state()? == ApprovalState::Pending;
    approval.resolve(tx, session, ApprovalEvent::Voided, actor, None).await?;
    Ok(was_pending)
}

/// Tells every process that waits that a decision about this effect was made. The payload is an id
/// and nothing else: whoever listens reads the rest as its own organisation.
pub(crate) async fn announce(tx: &mut Tenant, effect_id: Uuid) -> Result<(), StepError> {
    sqlx::query("SELECT pg_notify('undolog_approvals', $1)")
        .bind(effect_id.to_string())
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Appends a line to the audit trail of a request.
pub(crate) async fn audit(
    tx: &mut Tenant,
    session: &LockedSession,
    approval_id: Uuid,
    line: &AuditLine<'_>,
) -> Result<(), StepError> {
    let org_id = tx.org_id();
    sqlx::query(include_str!("../../sql/approval_audit.sql"))
        .bind(approval_id)
        .bind(org_id)
        .bind(line.action)
        .bind(line.actor)
        .bind(line.claimed_actor)
        .bind(line.note)
        .bind(&line.args_diff)
        .bind(session.t())
        .bind(line.actor_ip.map(|address| address.to_string()))
        .execute(tx.conn())
        .await?;
    Ok(())
}

/// Reads one request of a locked session.
pub async fn load(
    tx: &mut Tenant,
    session: &LockedSession,
    approval_id: Uuid,
) -> Result<Option<ApprovalRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_approval_requests \
         WHERE approval_request_id = $1 AND org_id = $2 AND session_id = $3 FOR NO KEY UPDATE"
    ))
    .bind(approval_id)
    .bind(org_id)
    .bind(session.id())
    .fetch_optional(tx.conn())
    .await?)
}

/// The session's requests that are undecided, or decided and not spent.
pub async fn undecided_or_unspent(
    tx: &mut Tenant,
    session: &LockedSession,
) -> Result<Vec<ApprovalRow>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_as(&format!(
        "SELECT {COLUMNS} FROM undolog_approval_requests \
         WHERE session_id = $1 AND org_id = $2 AND granted_at IS NULL \
         AND voided_at IS NULL AND state IN ('pending', 'approved', 'auto_approved') \
         ORDER BY created_at, approval_request_id FOR NO KEY UPDATE"
    ))
    .bind(session.id())
    .bind(org_id)
    .fetch_all(tx.conn())
    .await?)
}

/// Locks the session of a request for the system itself. `None`: there is no such request.
async fn lock_any(
    tx: &mut Tenant,
    approval_id: Uuid,
) -> Result<Option<(LockedSession, ApprovalRow)>, StepError> {
    let Some(session_id) = session_of(tx, approval_id).await? else { return Ok(None) };
    let Some(session) = LockedSession::lock_any(tx, session_id).await? else { return Ok(None) };
    Ok(load(tx, &session, approval_id).await?.map(|approval| (session, approval)))
}

/// The session of a request, unlocked: the session's lock comes first.
async fn session_of(tx: &mut Tenant, approval_id: Uuid) -> Result<Option<Uuid>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(
        "SELECT session_id FROM undolog_approval_requests \
         WHERE approval_request_id = $1 AND org_id = $2",
    )
    .bind(approval_id)
    .bind(org_id)
    .fetch_optional(tx.conn())
    .await?)
}

/// Locks the session of a request and then reads the request: the order that every step keeps.
async fn lock(
    tx: &mut Tenant,
    approval_id: Uuid,
    caller: &Caller,
) -> Result<(LockedSession, ApprovalRow), StepError> {
    let not_found = || {
        StepError::refuse(
            Reason::ApprovalNotFound,
            format!("there is no approval request {approval_id}"),
        )
    };
    let session_id = session_of(tx, approval_id).await?.ok_or_else(not_found)?;
    let session = LockedSession::lock(tx, session_id, caller).await?.ok_or_else(not_found)?;
    let approval = load(tx, &session, approval_id).await?.ok_or_else(not_found)?;
    Ok((session, approval))
}
