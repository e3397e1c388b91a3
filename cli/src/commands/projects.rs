//! `undolog projects`: groups of agent deployments inside an organisation.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use undolog_store::owner::{ProjectChange, ProjectRow};

use crate::{error::CliError, out::Out, owner::OwnerArgs};

/// Arguments of `undolog projects`.
#[derive(Debug, Args)]
pub struct ProjectsArgs {
    /// The database.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: ProjectsVerb,
}

/// What to do with projects.
#[derive(Debug, Subcommand)]
pub enum ProjectsVerb {
    /// Make a project.
    Create {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
        /// The project's name, unique in its organisation.
        name: String,
        /// What it is for.
        #[arg(long)]
        description: Option<String>,
    },
    /// Change a project's policies of approvals.
    Set(SetArgs),
    /// List an organisation's projects.
    List {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
    },
}

/// What to change.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The organisation's slug or uuid.
    #[arg(long)]
    pub org: String,
    /// The project's name or uuid.
    pub project: String,
    /// How long an approval may take; `default` leaves it to the organisation.
    #[arg(long, value_name = "SECONDS|default", value_parser = parse::<i32>)]
    pub approval_timeout_seconds: Option<Setting<i32>>,
    /// Whether a call that nobody decided in time is approved.
    #[arg(long, value_name = "true|false|default", value_parser = parse::<bool>)]
    pub auto_approve_on_timeout: Option<Setting<bool>>,
    /// How many people must approve the same arguments.
    #[arg(long, value_name = "COUNT|default", value_parser = parse::<i32>)]
    pub approval_quorum: Option<Setting<i32>>,
}

/// A value, or the organisation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting<T>(Option<T>);

fn parse<T: std::str::FromStr>(text: &str) -> Result<Setting<T>, String> {
    if text == "default" {
        return Ok(Setting(None));
    }
    text.parse().map(|value| Setting(Some(value))).map_err(|_| "a value, or `default`".to_owned())
}

impl From<&SetArgs> for ProjectChange {
    fn from(args: &SetArgs) -> Self {
        Self {
            approval_timeout_seconds: args.approval_timeout_seconds.map(|setting| setting.0),
            auto_approve_on_timeout: args.auto_approve_on_timeout.map(|setting| setting.0),
            approval_quorum: args.approval_quorum.map(|setting| setting.0),
        }
    }
}

/// Runs the verb.
pub async fn run(args: ProjectsArgs, out: &Out) -> Result<(), CliError> {
    let mut owner = args.owner.connect().await?;
    match args.verb {
        ProjectsVerb::Create { org, name, description } => {
            let org_id = owner.org(&org).await?.org_id;
            let row = owner.create_project(org_id, &name, description.as_deref()).await?;
            if out.is_json() {
                out.json(&as_json(&row))?;
            } else {
                table(&[row], out)?;
            }
        }
        ProjectsVerb::Set(set) => {
            let org_id = owner.org(&set.org).await?.org_id;
            let row = owner.set_project(org_id, &set.project, &(&set).into()).await?;
            if out.is_json() {
                out.json(&as_json(&row))?;
            } else {
                table(&[row], out)?;
            }
        }
        ProjectsVerb::List { org } => {
            let org_id = owner.org(&org).await?.org_id;
            let rows = owner.projects(org_id).await?;
            if out.is_json() {
                out.json(&rows.iter().map(as_json).collect::<Vec<_>>())?;
            } else {
                table(&rows, out)?;
            }
        }
    }
    Ok(owner.close().await?)
}

fn table(rows: &[ProjectRow], out: &Out) -> Result<(), CliError> {
    let cells = |row: &ProjectRow| {
        let description = row.description.clone().unwrap_or_default();
        let approvals = [
            row.approval_timeout_seconds.map(|seconds| format!("{seconds} s")),
            row.auto_approve_on_timeout
                .map(|auto| if auto { "auto" } else { "no auto" }.to_owned()),
            row.approval_quorum.map(|quorum| format!("quorum {quorum}")),
        ];
        let approvals: Vec<String> = approvals.into_iter().flatten().collect();
        vec![row.name.clone(), row.project_id.to_string(), approvals.join(", "), description]
    };
    out.table(&["name", "project", "approvals", "description"], rows.iter().map(cells).collect())
}

fn as_json(row: &ProjectRow) -> Value {
    json!({
        "project_id": row.project_id.to_string(),
        "org_id": row.org_id.to_string(),
        "name": row.name,
        "description": row.description,
        "created_at": row.created_at.to_rfc3339(),
        "updated_at": row.updated_at.to_rfc3339(),
        "approval_timeout_seconds": row.approval_timeout_seconds,
        "auto_approve_on_timeout": row.auto_approve_on_timeout,
        "approval_quorum": row.approval_quorum,
    })
}
