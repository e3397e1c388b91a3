//! Votes: how many distinct principals approve the same arguments.

use undolog_core::{
    json::canonical,
    reason::{Reason, Refusal},
};

use super::ApprovalRow;
use crate::{error::StepError, session::LockedSession, step::Caller, tenant::Tenant};

/// What is voted on now, and how often it was approved.
pub(super) struct Ballot {
    round: i32,
    /// The arguments that are voted on, in canonical form.
    pub(super) args: String,
}

/// The requester may not decide about its own call where the policy says so.
pub(super) fn refuse_requester(approval: &ApprovalRow, caller: &Caller) -> Result<(), StepError> {
    let is_requester = caller.principal == approval.requested_by;
    if is_requester && !approval.requester_may_approve && crate::guard!("approvals.requester") {
        return Err(Refusal::because(
            Reason::PermissionDenied,
            "whoever asked for this call may not approve it",
        )
        .with("approval_id", approval.id())
        .into());
    }
    Ok(())
}

/// The ballot as it stands: the proposed arguments, or the last edit of them.
pub(super) async fn ballot(tx: &mut Tenant, approval: &ApprovalRow) -> Result<Ballot, StepError> {
    let round = match approval.quorum {
        // The first vote decides, so there is none yet.
        ..=1 => None,
        _ => round(tx, approval).await?,
    };
    let node = match approval.approved()? {
        Some(edited) => edited,
        None => approval.proposed()?,
    };
    Ok(Ballot { round: round.unwrap_or(1), args: canonical(&node) })
}

/// Who approves without arguments approves the proposed ones, and means no edit that somebody else
/// made meanwhile.
pub(super) fn refuse_unseen(
    approval: &ApprovalRow,
    ballot: &Ballot,
    proposed: &str,
) -> Result<(), StepError> {
    if ballot.args == proposed || !crate::guard!("approvals.unseen") {
        return Ok(());
    }
    let why = "somebody edited the arguments: approve with the arguments that you mean";
    Err(Refusal::because(Reason::ArgsModified, why).with("approval_id", approval.id()).into())
}

async fn round(tx: &mut Tenant, approval: &ApprovalRow) -> Result<Option<i32>, StepError> {
    let org_id = tx.org_id();
    Ok(sqlx::query_scalar(
        "SELECT max(round) FROM undolog_approval_votes \
         WHERE approval_request_id = $1 AND org_id = $2",
    )
    .bind(approval.id())
    .bind(org_id)
    .fetch_one(tx.conn())
    .await?)
}

/// Casts a vote and answers whether the quorum is reached. Other arguments than those that are
/// voted on begin a new round: the earlier votes were for something else.
pub(super) async fn cast(
    tx: &mut Tenant,
    session: &LockedSession,
    approval: &ApprovalRow,
    ballot: &Ballot,
    approved: &str,
    principal: &str,
) -> Result<bool, StepError> {
    let org_id = tx.org_id();
    let round = if approved == ballot.args { ballot.round } else { ballot.round + 1 };
    sqlx::query(
        "INSERT INTO undolog_approval_votes (approval_request_id, org_id, principal, args_digest, \
         round, voted_at) VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
    )
    .bind(approval.id())
    .bind(org_id)
    .bind(principal)
    .bind(blake3::hash(approved.as_bytes()).as_bytes().as_slice())
    .bind(round)
    .bind(session.t())
    .execute(tx.conn())
    .await?;
    let votes: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_approval_votes \
         WHERE approval_request_id = $1 AND org_id = $2 AND round = $3",
    )
    .bind(approval.id())
    .bind(org_id)
    .bind(round)
    .fetch_one(tx.conn())
    .await?;
    Ok(votes >= i64::from(approval.quorum) || !crate::guard!("approvals.quorum"))
}
