//! `undolog approvals`: irreversible calls that wait for a human.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;
use undolog_proto::v1::{
    ApproveRequest, GetApprovalRequest, GetApprovalResponse, GetSessionRequest,
    ListApprovalsRequest, RejectRequest, RevokeApprovalRequest, WatchApprovalRequest,
};

use super::value;
use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    input::FileArgs,
    out::Out,
    paged,
    views::{ApprovalDetailView, ApprovalView, DecisionView, UpdateView, how_to_read},
};

/// Arguments of `undolog approvals`.
#[derive(Debug, Args)]
pub struct ApprovalsArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: ApprovalsVerb,
}

/// What to do with approval requests.
#[derive(Debug, Subcommand)]
pub enum ApprovalsVerb {
    /// List what waits for a decision, newest first.
    List(ListArgs),
    /// Show a request with every decision about it.
    Show {
        /// The request's id.
        approval_id: String,
    },
    /// Let the call run once, as asked or with other arguments.
    Approve(ApproveArgs),
    /// Stop the call for good.
    Reject(DecisionArgs),
    /// Take back an approval that was not used yet.
    Revoke(RevokeArgs),
    /// Stay with a request and print each change, until nothing can happen to it any more.
    Watch {
        /// The request's id.
        approval_id: String,
    },
}

/// Which requests to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only requests in this state; may be given more than once. Without it: pending ones.
    #[arg(long = "state", value_name = "STATE")]
    pub states: Vec<String>,
    /// Only requests of this session.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// The most requests to list; 0 lists all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub limit: u32,
}

/// A decision.
#[derive(Debug, Args)]
pub struct DecisionArgs {
    /// The request's id.
    pub approval_id: String,
    /// Why, for the audit.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub note: String,
    /// Who decides, as people know them; the audit keeps it beside the key's principal.
    #[arg(long, default_value = "", value_name = "NAME")]
    pub actor: String,
}

/// An approval.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    /// The decision.
    #[command(flatten)]
    pub decision: DecisionArgs,
    /// A JSON file with the arguments to run with; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub args: Option<PathBuf>,
}

/// What to take back.
#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The request's id.
    pub approval_id: String,
    /// Why, for the audit.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub note: String,
}

/// Runs the verb.
pub async fn run(args: ApprovalsArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    match args.verb {
        ApprovalsVerb::List(list_args) => list(&api, list_args, out).await,
        ApprovalsVerb::Show { approval_id } => show(&api, approval_id, out).await,
        ApprovalsVerb::Approve(approve_args) => approve(&api, approve_args, out).await,
        ApprovalsVerb::Reject(decision) => reject(&api, decision, out).await,
        ApprovalsVerb::Revoke(revoke_args) => revoke(&api, revoke_args, out).await,
        ApprovalsVerb::Watch { approval_id } => watch(&api, approval_id, out).await,
    }
}

async fn list(api: &Api, args: ListArgs, out: &Out) -> Result<(), CliError> {
    let approvals: Vec<ApprovalView> = paged::all(args.limit, async |page_size, page_token| {
        let request = ListApprovalsRequest {
            org_id: api.org(),
            states: args.states.clone(),
            session_id: args.session.clone().unwrap_or_default(),
            page_size,
            page_token,
        };
        let page = api.operator().list_approvals(api.request(request)).await?.into_inner();
        Ok((page.approvals.iter().map(Into::into).collect(), page.next_page_token))
    })
    .await?;
    if out.is_json() {
        return out.json(&approvals);
    }
    if approvals.is_empty() {
        return out.line("no approval requests");
    }
    out.table(&ApprovalView::HEADERS, approvals.iter().map(ApprovalView::row).collect())
}

async fn show(api: &Api, approval_id: String, out: &Out) -> Result<(), CliError> {
    let detail = ApprovalDetailView::from(&read(api, approval_id).await?);
    if out.is_json() {
        return out.json(&detail);
    }
    out.record(detail.approval.record())?;
    if !detail.events.is_empty() {
        out.line("\ndecisions")?;
        let rows = detail.events.iter().map(DecisionView::row).collect();
        out.table(&DecisionView::HEADERS, rows)?;
    }
    let approval = &detail.approval;
    let mut hints = how_to_read("approval", &approval.approval_id, &approval.fields_left_out);
    for event in &detail.events {
        hints.extend(how_to_read("approval_event", &event.event_id, &event.fields_left_out));
    }
    value::hint(&hints, out)
}

/// Reads a request with all decisions about it.
async fn read(api: &Api, approval_id: String) -> Result<GetApprovalResponse, CliError> {
    let mut events = Vec::new();
    let mut events_page_token = String::new();
    loop {
        let approval_id = approval_id.clone();
        let request = GetApprovalRequest { org_id: api.org(), approval_id, events_page_token };
        let page = api.operator().get_approval(api.request(request)).await?.into_inner();
        events.extend(page.events);
        events_page_token = page.events_next_page_token;
        if events_page_token.is_empty() {
            return Ok(GetApprovalResponse {
                events,
                approval: page.approval,
                events_next_page_token: String::new(),
            });
        }
    }
}

async fn approve(api: &Api, args: ApproveArgs, out: &Out) -> Result<(), CliError> {
    let approved_args = match args.args {
        Some(file) => FileArgs { file }.json()?,
        None => Vec::new(),
    };
    let request = ApproveRequest {
        approval_id: args.decision.approval_id.clone(),
        org_id: api.org(),
        actor: args.decision.actor,
        approved_args,
        note: args.decision.note,
    };
    let answer = api.engine().approve(api.request(request)).await?.into_inner();
    // With a quorum the request may still be pending.
    let request = GetApprovalRequest {
        org_id: api.org(),
        approval_id: args.decision.approval_id,
        events_page_token: String::new(),
    };
    let now = api.operator().get_approval(api.request(request)).await?.into_inner();
    let view = ApprovalView::from(&now.approval.unwrap_or_default());
    if out.is_json() {
        return out.json(&view);
    }
    let tool = format!("{} {}", answer.tool_name, answer.tool_version);
    match view.state.as_str() {
        "pending" => {
            out.line(format!("{tool}: {} of {} approved it so far", view.votes, view.quorum))
        }
        _ => out.line(format!("{tool} may run once (effect {})", answer.effect_id)),
    }
}

async fn reject(api: &Api, args: DecisionArgs, out: &Out) -> Result<(), CliError> {
    let request = RejectRequest {
        approval_id: args.approval_id.clone(),
        org_id: api.org(),
        actor: args.actor,
        note: args.note,
    };
    api.engine().reject(api.request(request)).await?;
    // The rejection stands, whatever can be read afterwards.
    let session = session_of(api, &args.approval_id).await;
    if out.is_json() {
        let mut shown = json!({"approval_id": args.approval_id, "state": "rejected"});
        if let Ok((session_id, state)) = &session {
            shown["session_id"] = json!(session_id);
            shown["session_state"] = json!(state);
        }
        return out.json(&shown);
    }
    out.line("rejected; the call will never run")?;
    match session {
        Ok((session_id, state)) => out.line(after_rejection(&session_id, &state)),
        Err(error) => out.line(format!("its session cannot be shown: {error}")),
    }
}

/// The id and state of the session that a request belongs to.
async fn session_of(api: &Api, approval_id: &str) -> Result<(String, String), CliError> {
    let request = GetApprovalRequest {
        org_id: api.org(),
        approval_id: approval_id.to_owned(),
        events_page_token: String::new(),
    };
    let now = api.operator().get_approval(api.request(request)).await?.into_inner();
    let session_id = now.approval.unwrap_or_default().session_id;
    let request = GetSessionRequest {
        org_id: api.org(),
        session_id: session_id.clone(),
        ..Default::default()
    };
    let shown = api.sessions().get(api.request(request)).await?.into_inner();
    Ok((session_id, shown.session.unwrap_or_default().state))
}

/// What became of the session, and what can be done next.
fn after_rejection(id: &str, state: &str) -> String {
    match state {
        "halted" => format!(
            "session {id} is halted: its earlier calls stand. `undolog sessions rollback {id}` \
             undoes them, `undolog sessions settle {id} --note …` closes it as handled. (With the \
             policy `on_rejection = continue` the agent goes on.)"
        ),
        "compensating" | "failed" => {
            format!("session {id} is being rolled back; see `undolog sessions show {id}`")
        }
        "compensated" => format!("session {id} was rolled back"),
        "awaiting_approval" => format!(
            "session {id} goes on and waits for another approval; see `undolog approvals list \
             --session {id}`"
        ),
        "active" => {
            format!("session {id} goes on: the agent hears the rejection when it asks again")
        }
        other => format!("session {id} is {other}"),
    }
}

async fn revoke(api: &Api, args: RevokeArgs, out: &Out) -> Result<(), CliError> {
    let request = RevokeApprovalRequest {
        org_id: api.org(),
        approval_id: args.approval_id.clone(),
        note: args.note,
    };
    let answer = api.operator().revoke_approval(api.request(request)).await?.into_inner();
    if out.is_json() {
        let effect_id = answer.effect_id;
        return out.json(&json!({"approval_id": args.approval_id, "effect_id": effect_id}));
    }
    out.line("revoked; the call will never run")
}

async fn watch(api: &Api, approval_id: String, out: &Out) -> Result<(), CliError> {
    let request = WatchApprovalRequest { org_id: api.org(), approval_id };
    // A stream has no deadline.
    let mut updates = api.operator().watch_approval(request).await?.into_inner();
    while let Some(update) = updates.message().await? {
        let view = UpdateView::from(&update);
        if out.is_json() {
            out.json_line(&view)?;
        } else {
            out.line(told(&view.approval))?;
        }
        if view.is_final {
            return Ok(());
        }
    }
    Err(CliError::Unavailable("the engine ended the stream before the decision".to_owned()))
}

/// One line about a request as it stands.
fn told(approval: &ApprovalView) -> String {
    let by = approval.resolved_by.as_ref().map(|who| format!(" by {who}")).unwrap_or_default();
    let used = if approval.granted_at.is_some() { ", and used" } else { "" };
    let until = match (&approval.timeout_at, approval.state.as_str()) {
        (Some(until), "pending") => format!(" until {until}"),
        _ => String::new(),
    };
    format!(
        "{} {}{by}{until}{used}; the call is {}",
        approval.tool_name,
        approval.standing(),
        approval.effect_state
    )
}
