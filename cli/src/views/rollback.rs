use serde::Serialize;
use undolog_proto::v1::{PlannedUndo, ResidueItem, RollbackResponse};

use super::{Raw, cell, text};

/// What a rollback will do, or has begun to do.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct PlanView {
    pub rollback_id: Option<String>,
    pub state: String,
    pub next_step_index: u32,
    pub plan: Vec<PlannedUndoView>,
    pub residue: Vec<ResidueView>,
    pub voided_approvals: Vec<String>,
    pub truncated: bool,
    /// The token of the next page; read by whoever reads one page alone.
    #[serde(skip)]
    pub next_page_token: String,
}

impl From<&RollbackResponse> for PlanView {
    fn from(answer: &RollbackResponse) -> Self {
        Self {
            rollback_id: text(&answer.rollback_id),
            state: answer.state.clone(),
            next_step_index: answer.next_step_index,
            plan: answer.plan.iter().map(Into::into).collect(),
            residue: answer.residue.iter().map(Into::into).collect(),
            voided_approvals: answer.voided_approvals.clone(),
            truncated: answer.truncated,
            next_page_token: answer.next_page_token.clone(),
        }
    }
}

impl PlanView {
    /// Adds the next page of a dry run.
    pub fn add(&mut self, more: Self) {
        self.plan.extend(more.plan);
        self.residue.extend(more.residue);
        self.voided_approvals.extend(more.voided_approvals);
        (self.truncated, self.next_page_token) = (more.truncated, more.next_page_token);
    }
}

/// One call that would undo an effect.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct PlannedUndoView {
    pub position: u32,
    pub step_index: u32,
    pub tool_name: String,
    pub effect_id: String,
    pub effect_state: String,
    pub undo_id: String,
    pub compensation_fn: String,
    pub compensation_version: String,
    pub action: String,
    pub method: String,
    pub url: String,
    pub body: Raw,
    pub content_type: Option<String>,
    pub note: Option<String>,
    pub fields_left_out: Vec<String>,
}

impl From<&PlannedUndo> for PlannedUndoView {
    fn from(item: &PlannedUndo) -> Self {
        Self {
            position: item.position,
            step_index: item.step_index,
            tool_name: item.tool_name.clone(),
            effect_id: item.effect_id.clone(),
            effect_state: item.effect_state.clone(),
            undo_id: item.undo_id.clone(),
            compensation_fn: item.compensation_fn.clone(),
            compensation_version: item.compensation_version.clone(),
            action: item.action.clone(),
            method: item.method.clone(),
            url: item.url.clone(),
            body: Raw::new(&item.body),
            content_type: text(&item.content_type),
            note: text(&item.note),
            fields_left_out: item.fields_left_out.clone(),
        }
    }
}

impl PlannedUndoView {
    /// The columns of a table of planned calls.
    pub const HEADERS: [&'static str; 8] =
        ["position", "step", "tool", "state", "action", "call", "body", "note"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.step_index.to_string(),
            self.tool_name.clone(),
            self.effect_state.clone(),
            self.action.clone(),
            format!("{} {}", self.method, self.url).trim().to_owned(),
            cell(&self.body, "body", &self.fields_left_out),
            self.note.clone().unwrap_or_default(),
        ]
    }
}

/// A committed irreversible effect, which stays.
#[derive(Debug, Clone, Serialize)]
#[expect(missing_docs, reason = "the fields are described on the wire")]
pub struct ResidueView {
    pub position: u32,
    pub step_index: u32,
    pub tool_name: String,
    pub effect_id: String,
    pub effect_state: String,
}

impl From<&ResidueItem> for ResidueView {
    fn from(item: &ResidueItem) -> Self {
        Self {
            position: item.position,
            step_index: item.step_index,
            tool_name: item.tool_name.clone(),
            effect_id: item.effect_id.clone(),
            effect_state: item.effect_state.clone(),
        }
    }
}

impl ResidueView {
    /// The columns of a table of residue.
    pub const HEADERS: [&'static str; 5] = ["position", "step", "tool", "state", "effect"];

    /// The cells of a table's row.
    #[must_use]
    pub fn row(&self) -> Vec<String> {
        vec![
            self.position.to_string(),
            self.step_index.to_string(),
            self.tool_name.clone(),
            self.effect_state.clone(),
            self.effect_id.clone(),
        ]
    }
}
