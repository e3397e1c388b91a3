//! `undolog tools`: register, list and show tools.

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::RawValue;
use undolog_proto::v1::{
    GetToolRequest, ListToolsRequest, RegisterToolRequest, SetToolActiveRequest, Tool,
};

use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    input::{ActiveArgs, FileArgs, json_bytes},
    out::Out,
    views::ToolView,
};

/// Arguments of `undolog tools`.
#[derive(Debug, Args)]
pub struct ToolsArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: ToolsVerb,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolsVerb {
    /// Register the tools of a JSON file.
    Register(FileArgs),
    /// List every version of every tool.
    List,
    /// Show one tool.
    Show {
        /// Its name.
        name: String,
        /// Its version; the newest active one if left out.
        version: Option<String>,
    },
    /// Take one out of use: nothing new begins with it. What was bound before is undone as ever.
    Deactivate(ActiveArgs),
    /// Bring one back into use.
    Activate(ActiveArgs),
}

/// A tool as it stands in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ToolFile {
    tool_name: String,
    tool_version: String,
    tier: String,
    irreversibility_reason: String,
    compensation_ref: String,
    tool_schema: Option<Box<RawValue>>,
    risk_tags: Vec<String>,
    estimated_impact: String,
    is_active: Option<bool>,
    project_id: String,
    idempotent: bool,
    grant_lease_ms: u32,
    max_execution_ms: u32,
    allowed_compensations: Vec<String>,
    approval_timeout_seconds: u32,
    auto_approve_on_timeout: Option<bool>,
    approval_quorum: u32,
    requester_may_approve: Option<bool>,
    probe: Option<Box<RawValue>>,
    upstream: Option<Box<RawValue>>,
    execute_on_approval: Option<bool>,
    compensation_args: Option<Box<RawValue>>,
    caller_args: bool,
}

impl From<ToolFile> for Tool {
    fn from(file: ToolFile) -> Self {
        Self {
            tool_name: file.tool_name,
            tool_version: file.tool_version,
            tier: file.tier,
            irreversibility_reason: file.irreversibility_reason,
            compensation_ref: file.compensation_ref,
            tool_schema: json_bytes(file.tool_schema),
            risk_tags: file.risk_tags,
            estimated_impact: file.estimated_impact,
            project_id: file.project_id,
            idempotent: file.idempotent,
            grant_lease_ms: file.grant_lease_ms,
            max_execution_ms: file.max_execution_ms,
            allowed_compensations: file.allowed_compensations,
            approval_timeout_seconds: file.approval_timeout_seconds,
            auto_approve_on_timeout: file.auto_approve_on_timeout,
            approval_quorum: file.approval_quorum,
            requester_may_approve: file.requester_may_approve,
            probe: json_bytes(file.probe),
            upstream: json_bytes(file.upstream),
            execute_on_approval: file.execute_on_approval,
            compensation_args: json_bytes(file.compensation_args),
            caller_args: file.caller_args,
            ..Self::default()
        }
    }
}

/// Runs the verb.
pub async fn run(args: ToolsArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    match args.verb {
        ToolsVerb::Register(file) => register(&api, &file, out).await,
        ToolsVerb::List => list(&api, out).await,
        ToolsVerb::Show { name, version } => show(&api, name, version, out).await,
        ToolsVerb::Deactivate(args) => set_active(&api, args, false, out).await,
        ToolsVerb::Activate(args) => set_active(&api, args, true, out).await,
    }
}

async fn register(api: &Api, file: &FileArgs, out: &Out) -> Result<(), CliError> {
    let mut registered = Vec::new();
    for tool in file.read::<ToolFile>()? {
        let wanted = tool.is_active;
        let request = RegisterToolRequest { org_id: api.org(), tool: Some(tool.into()) };
        let answer = api.registry().register_tool(api.request(request)).await?.into_inner();
        let mut view = ToolView::from(&answer.tool.unwrap_or_default());
        if let Some(is_active) = wanted.filter(|wanted| *wanted != view.is_active) {
            change(api, &view.tool_name, &view.tool_version, is_active).await?;
            view.is_active = is_active;
        }
        if !out.is_json() {
            let verb = if answer.created { "registered" } else { "registered before:" };
            out.line(format!("{verb} {} {} ({})", view.tool_name, view.tool_version, view.tier))?;
        }
        registered.push(view);
    }
    if out.is_json() { out.json(&registered) } else { Ok(()) }
}

async fn list(api: &Api, out: &Out) -> Result<(), CliError> {
    let mut tools: Vec<ToolView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListToolsRequest { org_id: api.org(), page_size: 0, page_token };
        let page = api.registry().list_tools(api.request(request)).await?.into_inner();
        tools.extend(page.tools.iter().map(Into::into));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if out.is_json() {
        return out.json(&tools);
    }
    out.table(&ToolView::HEADERS, tools.iter().map(ToolView::row).collect())
}

async fn show(
    api: &Api,
    tool_name: String,
    version: Option<String>,
    out: &Out,
) -> Result<(), CliError> {
    let tool_version = version.unwrap_or_default();
    let request = GetToolRequest { org_id: api.org(), tool_name, tool_version };
    let answer = api.registry().get_tool(api.request(request)).await?.into_inner();
    let view = ToolView::from(&answer.tool.unwrap_or_default());
    if out.is_json() { out.json(&view) } else { out.record(view.record()) }
}

async fn set_active(
    api: &Api,
    args: ActiveArgs,
    is_active: bool,
    out: &Out,
) -> Result<(), CliError> {
    let version = args.version.as_deref().unwrap_or_default();
    let (changed, left_out) = change(api, &args.name, version, is_active).await?;
    args.tell(&changed, left_out, is_active, out)
}

async fn change(
    api: &Api,
    name: &str,
    version: &str,
    is_active: bool,
) -> Result<(Vec<String>, u32), CliError> {
    let request = SetToolActiveRequest {
        org_id: api.org(),
        tool_name: name.to_owned(),
        tool_version: version.to_owned(),
        is_active,
    };
    let answer = api.registry().set_tool_active(api.request(request)).await?.into_inner();
    Ok((answer.changed_versions, answer.versions_left_out))
}
