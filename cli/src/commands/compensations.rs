//! `undolog compensations`: register, list and show how calls are undone.

use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::value::RawValue;
use undolog_proto::v1::{
    Compensation, GetCompensationRequest, ListCompensationsRequest, RegisterCompensationRequest,
    SetCompensationActiveRequest,
};

use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    input::{ActiveArgs, FileArgs, json_bytes},
    out::Out,
    views::CompensationView,
};

/// Arguments of `undolog compensations`.
#[derive(Debug, Args)]
pub struct CompensationsArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: CompensationsVerb,
}

/// What to do with compensations.
#[derive(Debug, Subcommand)]
pub enum CompensationsVerb {
    /// Register the compensations of a JSON file.
    Register(FileArgs),
    /// List every version of every compensation.
    List,
    /// Show one compensation.
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

/// A compensation as it stands in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CompensationFile {
    fn_name: String,
    fn_version: String,
    description: String,
    fn_body: Option<Box<RawValue>>,
    args_schema: Option<Box<RawValue>>,
    max_retries: Option<u32>,
    retry_backoff_ms: Option<u32>,
    is_active: Option<bool>,
    open: bool,
    concurrency_max: Option<u32>,
    rate_per_minute: Option<u32>,
    result_from: String,
}

impl From<CompensationFile> for Compensation {
    fn from(file: CompensationFile) -> Self {
        Self {
            fn_name: file.fn_name,
            fn_version: file.fn_version,
            description: file.description,
            fn_body: json_bytes(file.fn_body),
            args_schema: json_bytes(file.args_schema),
            max_retries: file.max_retries,
            retry_backoff_ms: file.retry_backoff_ms,
            open: file.open,
            concurrency_max: file.concurrency_max,
            rate_per_minute: file.rate_per_minute,
            result_from: file.result_from,
            ..Self::default()
        }
    }
}

/// Runs the verb.
pub async fn run(args: CompensationsArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    match args.verb {
        CompensationsVerb::Register(file) => register(&api, &file, out).await,
        CompensationsVerb::List => list(&api, out).await,
        CompensationsVerb::Show { name, version } => show(&api, name, version, out).await,
        CompensationsVerb::Deactivate(args) => set_active(&api, args, false, out).await,
        CompensationsVerb::Activate(args) => set_active(&api, args, true, out).await,
    }
}

async fn register(api: &Api, file: &FileArgs, out: &Out) -> Result<(), CliError> {
    let mut registered = Vec::new();
    for compensation in file.read::<CompensationFile>()? {
        let wanted = compensation.is_active;
        let request = RegisterCompensationRequest {
            org_id: api.org(),
            compensation: Some(compensation.into()),
        };
        let answer = api.registry().register_compensation(api.request(request)).await?.into_inner();
        let mut view = CompensationView::from(&answer.compensation.unwrap_or_default());
        if let Some(is_active) = wanted.filter(|wanted| *wanted != view.is_active) {
            change(api, &view.fn_name, &view.fn_version, is_active).await?;
            view.is_active = is_active;
        }
        if !out.is_json() {
            let verb = if answer.created { "registered" } else { "registered before:" };
            out.line(format!("{verb} {} {}", view.fn_name, view.fn_version))?;
        }
        registered.push(view);
    }
    if out.is_json() { out.json(&registered) } else { Ok(()) }
}

async fn list(api: &Api, out: &Out) -> Result<(), CliError> {
    let mut compensations: Vec<CompensationView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListCompensationsRequest { org_id: api.org(), page_size: 0, page_token };
        let page = api.registry().list_compensations(api.request(request)).await?.into_inner();
        compensations.extend(page.compensations.iter().map(Into::into));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if out.is_json() {
        return out.json(&compensations);
    }
    let rows = compensations.iter().map(CompensationView::row).collect();
    out.table(&CompensationView::HEADERS, rows)
}

async fn show(
    api: &Api,
    fn_name: String,
    version: Option<String>,
    out: &Out,
) -> Result<(), CliError> {
    let fn_version = version.unwrap_or_default();
    let request = GetCompensationRequest { org_id: api.org(), fn_name, fn_version };
    let answer = api.registry().get_compensation(api.request(request)).await?.into_inner();
    let view = CompensationView::from(&answer.compensation.unwrap_or_default());
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
    let request = SetCompensationActiveRequest {
        org_id: api.org(),
        fn_name: name.to_owned(),
        fn_version: version.to_owned(),
        is_active,
    };
    let answer = api.registry().set_compensation_active(api.request(request)).await?.into_inner();
    Ok((answer.changed_versions, answer.versions_left_out))
}
