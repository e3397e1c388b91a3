use serde::Serialize;
use undolog_proto::v1::{Approval, ApprovalEvent, ApprovalUpdate, GetApprovalResponse};

use super::{Raw, cell, shorten, text, time, time_cell, whole};

/// An irreversible call that waits, or waited, for a human.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ApprovalView {
    pub approval_id: String,
    pub session_id: String,
    pub effect_id: String,
    pub tool_name: String,
    pub tool_version: String,
    pub state: String,
    pub irreversibility_reason: String,
    pub risk_tags: Vec<String>,
    pub estimated_impact: Option<String>,
    pub proposed_args: Raw,
    pub approved_args: Raw,
    pub agent_context: Raw,
    pub created_at: Option<String>,
    pub timeout_at: Option<String>,
    pub auto_approve_on_timeout: bool,
    pub resolved_at: Option<String>,
    pub resolved_by: Option<String>,
    pub quorum: u32,
    pub votes: u32,
    pub granted_at: Option<String>,
    pub effect_state: String,
    pub requested_by: String,
    pub requester_may_approve: bool,
    pub fields_left_out: Vec<String>,
}

impl From<&Approval> for ApprovalView {
    fn from(from: &Approval) -> Self {
        Self {
            approval_id: from.approval_id.clone(),
            session_id: from.session_id.clone(),
            effect_id: from.effect_id.clone(),
            tool_name: from.tool_name.clone(),
            tool_version: from.tool_version.clone(),
            state: from.state.clone(),
            irreversibility_reason: from.irreversibility_reason.clone(),
            risk_tags: from.risk_tags.clone(),
            estimated_impact: text(&from.estimated_impact),
            proposed_args: Raw::new(&from.proposed_args),
            approved_args: Raw::new(&from.approved_args),
            agent_context: Raw::new(&from.agent_context),
            created_at: time(from.created_at.as_ref()),
            timeout_at: time(from.timeout_at.as_ref()),
            auto_approve_on_timeout: from.auto_approve_on_timeout,
            resolved_at: time(from.resolved_at.as_ref()),
            resolved_by: text(&from.resolved_by),
            quorum: from.quorum,
            votes: from.votes,
            granted_at: time(from.granted_at.as_ref()),
            effect_state: from.effect_state.clone(),
            requested_by: from.requested_by.clone(),
            requester_may_approve: from.requester_may_approve,
            fields_left_out: from.fields_left_out.clone(),
        }
    }
}

impl ApprovalView {
    /// The columns of a table of approval requests.
    pub const HEADERS: [&'static str; 8] =
        ["approval", "state", "tool", "args", "tags", "asked by", "until", "decided by"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.approval_id.clone(),
            self.standing(),
            self.tool_name.clone(),
            cell(&self.proposed_args, "proposed_args", &self.fields_left_out),
            self.risk_tags.join(","),
            self.requested_by.clone(),
            time_cell(self.timeout_at.as_ref()),
            self.resolved_by.clone().unwrap_or_default(),
        ]
    }

    /// The state, with the votes of a quorum that is not reached.
    #[must_use]
    pub fn standing(&self) -> String {
        if self.quorum > 1 && self.state == "pending" {
            return format!("{} ({} of {})", self.state, self.votes, self.quorum);
        }
        self.state.clone()
    }

    /// The fields of a record.
    #[must_use]
    pub fn record(&self) -> Vec<(&'static str, String)> {
        let left_out = &self.fields_left_out;
        let at_timeout = if self.auto_approve_on_timeout { "approved" } else { "rejected" };
        vec![
            ("approval", self.approval_id.clone()),
            ("state", self.standing()),
            ("tool", format!("{} {}", self.tool_name, self.tool_version)),
            ("why it cannot be undone", self.irreversibility_reason.clone()),
            ("impact", self.estimated_impact.clone().unwrap_or_default()),
            ("tags", self.risk_tags.join(", ")),
            ("asked by", self.requested_by.clone()),
            ("session", self.session_id.clone()),
            ("effect", format!("{} ({})", self.effect_id, self.effect_state)),
            ("proposed args", whole(&self.proposed_args, "proposed_args", left_out)),
            ("approved args", whole(&self.approved_args, "approved_args", left_out)),
            ("context", whole(&self.agent_context, "agent_context", left_out)),
            ("asked", self.created_at.clone().unwrap_or_default()),
            ("until", self.timeout_at.clone().unwrap_or_default()),
            ("then", at_timeout.to_owned()),
            ("decided", self.resolved_at.clone().unwrap_or_default()),
            ("decided by", self.resolved_by.clone().unwrap_or_default()),
            ("used", self.granted_at.clone().unwrap_or_default()),
        ]
    }
}

/// One decision about a request.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct DecisionView {
    pub event_id: String,
    pub action: String,
    pub actor: String,
    pub claimed_actor: Option<String>,
    pub note: Option<String>,
    pub args_diff: Raw,
    pub occurred_at: Option<String>,
    pub actor_ip: Option<String>,
    pub fields_left_out: Vec<String>,
}

impl From<&ApprovalEvent> for DecisionView {
    fn from(from: &ApprovalEvent) -> Self {
        Self {
            event_id: from.event_id.clone(),
            action: from.action.clone(),
            actor: from.actor.clone(),
            claimed_actor: text(&from.claimed_actor),
            note: text(&from.note),
            args_diff: Raw::new(&from.args_diff),
            occurred_at: time(from.occurred_at.as_ref()),
            actor_ip: text(&from.actor_ip),
            fields_left_out: from.fields_left_out.clone(),
        }
    }
}

impl DecisionView {
    /// The columns of a table of decisions.
    pub const HEADERS: [&'static str; 7] = ["time", "action", "by", "name", "from", "edit", "note"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            time_cell(self.occurred_at.as_ref()),
            self.action.clone(),
            self.actor.clone(),
            self.claimed_actor.clone().unwrap_or_default(),
            self.actor_ip.clone().unwrap_or_default(),
            cell(&self.args_diff, "args_diff", &self.fields_left_out),
            shorten(self.note.as_deref().unwrap_or_default(), 60),
        ]
    }
}

/// A request with every decision about it.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ApprovalDetailView {
    pub approval: ApprovalView,
    pub events: Vec<DecisionView>,
}

impl From<&GetApprovalResponse> for ApprovalDetailView {
    fn from(from: &GetApprovalResponse) -> Self {
        Self {
            approval: (&from.approval.clone().unwrap_or_default()).into(),
            events: from.events.iter().map(Into::into).collect(),
        }
    }
}

/// A change of a request that is watched.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct UpdateView {
    pub is_final: bool,
    pub approval: ApprovalView,
}

impl From<&ApprovalUpdate> for UpdateView {
    fn from(from: &ApprovalUpdate) -> Self {
        let approval = from.approval.clone().unwrap_or_default();
        Self { is_final: from.is_final, approval: (&approval).into() }
    }
}
