//! `undolog projects`: groups of agent deployments inside an organisation.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use undolog_store::owner::ProjectRow;

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
    /// List an organisation's projects.
    List {
        /// The organisation's slug or uuid.
        #[arg(long)]
        org: String,
    },
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
        vec![row.name.clone(), row.project_id.to_string(), description]
    };
    out.table(&["name", "project", "description"], rows.iter().map(cells).collect())
}

fn as_json(row: &ProjectRow) -> Value {
    json!({
        "project_id": row.project_id.to_string(),
        "org_id": row.org_id.to_string(),
        "name": row.name,
        "description": row.description,
        "created_at": row.created_at.to_rfc3339(),
    })
}
