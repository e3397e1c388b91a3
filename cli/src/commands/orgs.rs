//! `undolog orgs`: organisations with their time-outs and policies.

use clap::{Args, Subcommand};
use serde::Serialize;
use undolog_store::owner::{OrgChange, OrgRow};

use crate::{error::CliError, out::Out, owner::OwnerArgs};

/// Arguments of `undolog orgs`.
#[derive(Debug, Args)]
pub struct OrgsArgs {
    /// The database.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: OrgsVerb,
}

/// What to do with organisations.
#[derive(Debug, Subcommand)]
pub enum OrgsVerb {
    /// Make an organisation.
    Create {
        /// Its short name: lower-case letters, digits and dashes.
        slug: String,
        /// Its name for people; the slug if left out.
        #[arg(long)]
        name: Option<String>,
    },
    /// List organisations.
    List,
    /// Show an organisation's time-outs and policies.
    Show {
        /// Its slug or uuid.
        org: String,
    },
    /// Change an organisation's time-outs and policies.
    Set(Box<SetArgs>),
}

/// What to change.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// The organisation's slug or uuid.
    pub org: String,
    /// Name for people.
    #[arg(long)]
    pub name: Option<String>,
    /// How long an approval may take.
    #[arg(long, value_name = "SECONDS", value_parser = seconds().range(1..))]
    pub default_approval_timeout_seconds: Option<i32>,
    /// Whether a call that nobody decided in time is approved.
    #[arg(long, value_name = "true|false")]
    pub auto_approve_on_timeout: Option<bool>,
    /// Risk tags whose calls are never approved by a time-out; an empty text takes them away.
    #[arg(long, value_name = "TAG,…", value_delimiter = ',')]
    pub never_auto_approve_tags: Option<Vec<String>>,
    /// Whether whoever asked for a call may approve it.
    #[arg(long, value_name = "true|false")]
    pub requester_may_approve: Option<bool>,
    /// What a failed call does to its session.
    #[arg(long, value_parser = ["rollback", "continue"])]
    pub on_tool_failure: Option<String>,
    /// What a rejected call does to its session.
    #[arg(long, value_parser = ["halt", "rollback", "continue"])]
    pub on_rejection: Option<String>,
    /// What a dead letter does to the walk.
    #[arg(long, value_parser = ["halt", "continue"])]
    pub on_dead_letter: Option<String>,
    /// What another call at a taken step gets.
    #[arg(long, value_parser = ["refuse", "allow"])]
    pub on_step_conflict: Option<String>,
    /// What a call of an unknown tool gets.
    #[arg(long, value_parser = ["refuse", "irreversible"])]
    pub on_unregistered_tool: Option<String>,
    /// What an unknown outcome does to a live session; `default` leaves it to the kind of session.
    #[arg(long, value_parser = ["rollback", "hold", "default"])]
    pub on_unknown: Option<String>,
    /// Which of its own sessions an agent may roll back.
    #[arg(long, value_parser = ["any", "live", "never"])]
    pub agents_roll_back: Option<String>,
    /// What becomes of an idle session that nobody ended.
    #[arg(long, value_parser = ["complete", "rollback", "leave"])]
    pub on_idle: Option<String>,
    /// How long such a session may be idle.
    #[arg(long, value_name = "SECONDS", value_parser = seconds().range(60..=31_622_400))]
    pub idle_session_seconds: Option<i32>,
    /// How long a session's lease rests after an approval was decided.
    #[arg(long, value_name = "SECONDS", value_parser = seconds().range(0..=31_622_400))]
    pub resume_window_seconds: Option<i32>,
    /// How long a finished session can be undone or replayed.
    #[arg(long, value_name = "SECONDS", value_parser = seconds().range(60..=316_224_000))]
    pub undo_window_seconds: Option<i32>,
    /// How long an unknown effect is waited for before its undo; `default` is its grant's lease.
    #[arg(long, value_name = "MS|default", value_parser = parse_settle_ms)]
    pub settle_ms: Option<Settle>,
    /// Where notifications go; `none` ends them.
    #[arg(long, value_name = "URL|none")]
    pub webhook_url: Option<String>,
    /// Name of the secret that signs notifications; the secret itself is the workers'.
    #[arg(long, value_name = "NAME")]
    pub webhook_secret: Option<String>,
}

fn seconds() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32)
}

/// A wait, or the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle(Option<i64>);

fn parse_settle_ms(text: &str) -> Result<Settle, String> {
    if text == "default" {
        return Ok(Settle(None));
    }
    let parsed = text.parse::<u32>().map(|ms| Settle(Some(i64::from(ms))));
    parsed.map_err(|_| "a number of milliseconds, or `default`".to_owned())
}

impl From<SetArgs> for OrgChange {
    fn from(args: SetArgs) -> Self {
        let tags = args.never_auto_approve_tags;
        Self {
            name: args.name,
            default_approval_timeout_seconds: args.default_approval_timeout_seconds,
            auto_approve_on_timeout: args.auto_approve_on_timeout,
            never_auto_approve_tags: tags
                .map(|tags| tags.into_iter().filter(|tag| !tag.is_empty()).collect()),
            on_tool_failure: args.on_tool_failure,
            on_rejection: args.on_rejection,
            on_dead_letter: args.on_dead_letter,
            on_step_conflict: args.on_step_conflict,
            on_unregistered_tool: args.on_unregistered_tool,
            on_unknown: args.on_unknown.map(|value| (value != "default").then_some(value)),
            on_idle: args.on_idle,
            idle_session_seconds: args.idle_session_seconds,
            resume_window_seconds: args.resume_window_seconds,
            undo_window_seconds: args.undo_window_seconds,
            settle_ms: args.settle_ms.map(|settle| settle.0),
            requester_may_approve: args.requester_may_approve,
            agents_roll_back: args.agents_roll_back,
            webhook_url: args.webhook_url.map(|url| (url != "none").then_some(url)),
            webhook_secret: args.webhook_secret,
        }
    }
}

/// Runs the verb.
pub async fn run(args: OrgsArgs, out: &Out) -> Result<(), CliError> {
    let mut owner = args.owner.connect().await?;
    match args.verb {
        OrgsVerb::Create { slug, name } => {
            let name = name.as_deref().unwrap_or(&slug);
            show(&owner.create_org(&slug, name).await?, out)?;
        }
        OrgsVerb::List => list(&owner.orgs().await?, out)?,
        OrgsVerb::Show { org } => show(&owner.org(&org).await?, out)?,
        OrgsVerb::Set(set) => {
            let org_id = owner.org(&set.org).await?.org_id;
            show(&owner.set_org(org_id, &(*set).into()).await?, out)?;
        }
    }
    Ok(owner.close().await?)
}

fn list(rows: &[OrgRow], out: &Out) -> Result<(), CliError> {
    if out.is_json() {
        return out.json(&rows.iter().map(OrgView::from).collect::<Vec<_>>());
    }
    let cells = |row: &OrgRow| {
        let created = row.created_at.format("%Y-%m-%d %H:%M:%S").to_string();
        vec![row.slug.clone(), row.name.clone(), row.org_id.to_string(), created]
    };
    out.table(&["slug", "name", "org", "created"], rows.iter().map(cells).collect())
}

fn show(row: &OrgRow, out: &Out) -> Result<(), CliError> {
    if out.is_json() {
        return out.json(&OrgView::from(row));
    }
    let or_default = |value: Option<String>| value.unwrap_or_else(|| "default".to_owned());
    out.record(vec![
        ("slug", row.slug.clone()),
        ("name", row.name.clone()),
        ("org", row.org_id.to_string()),
        ("created", row.created_at.to_rfc3339()),
        ("default_approval_timeout_seconds", row.default_approval_timeout_seconds.to_string()),
        ("auto_approve_on_timeout", row.auto_approve_on_timeout.to_string()),
        ("never_auto_approve_tags", row.never_auto_approve_tags.join(",")),
        ("on_tool_failure", row.on_tool_failure.clone()),
        ("on_rejection", row.on_rejection.clone()),
        ("on_dead_letter", row.on_dead_letter.clone()),
        ("on_step_conflict", row.on_step_conflict.clone()),
        ("on_unregistered_tool", row.on_unregistered_tool.clone()),
        ("on_unknown", or_default(row.on_unknown.clone())),
        ("on_idle", row.on_idle.clone()),
        ("idle_session_seconds", row.idle_session_seconds.to_string()),
        ("resume_window_seconds", row.resume_window_seconds.to_string()),
        ("undo_window_seconds", row.undo_window_seconds.to_string()),
        ("settle_ms", or_default(row.settle_ms.map(|ms| ms.to_string()))),
        ("requester_may_approve", row.requester_may_approve.to_string()),
        ("agents_roll_back", row.agents_roll_back.clone()),
        ("webhook_url", row.webhook_url.clone().unwrap_or_default()),
        ("webhook_secret", row.webhook_secret.clone().unwrap_or_default()),
    ])
}

/// An organisation as JSON.
#[derive(Debug, Serialize)]
struct OrgView<'a> {
    org_id: String,
    slug: &'a str,
    name: &'a str,
    created_at: String,
    updated_at: String,
    default_approval_timeout_seconds: i32,
    auto_approve_on_timeout: bool,
    never_auto_approve_tags: &'a [String],
    on_tool_failure: &'a str,
    on_rejection: &'a str,
    on_dead_letter: &'a str,
    on_step_conflict: &'a str,
    on_unregistered_tool: &'a str,
    on_unknown: Option<&'a str>,
    on_idle: &'a str,
    idle_session_seconds: i32,
    resume_window_seconds: i32,
    undo_window_seconds: i32,
    settle_ms: Option<i64>,
    requester_may_approve: bool,
    agents_roll_back: &'a str,
    webhook_url: Option<&'a str>,
    webhook_secret: Option<&'a str>,
}

impl<'a> From<&'a OrgRow> for OrgView<'a> {
    fn from(row: &'a OrgRow) -> Self {
        Self {
            org_id: row.org_id.to_string(),
            slug: &row.slug,
            name: &row.name,
            created_at: row.created_at.to_rfc3339(),
            updated_at: row.updated_at.to_rfc3339(),
            default_approval_timeout_seconds: row.default_approval_timeout_seconds,
            auto_approve_on_timeout: row.auto_approve_on_timeout,
            never_auto_approve_tags: &row.never_auto_approve_tags,
            on_tool_failure: &row.on_tool_failure,
            on_rejection: &row.on_rejection,
            on_dead_letter: &row.on_dead_letter,
            on_step_conflict: &row.on_step_conflict,
            on_unregistered_tool: &row.on_unregistered_tool,
            on_unknown: row.on_unknown.as_deref(),
            on_idle: &row.on_idle,
            idle_session_seconds: row.idle_session_seconds,
            resume_window_seconds: row.resume_window_seconds,
            undo_window_seconds: row.undo_window_seconds,
            settle_ms: row.settle_ms,
            requester_may_approve: row.requester_may_approve,
            agents_roll_back: &row.agents_roll_back,
            webhook_url: row.webhook_url.as_deref(),
            webhook_secret: row.webhook_secret.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_number_or_the_default() {
        assert_eq!(parse_settle_ms("default"), Ok(Settle(None)));
        assert_eq!(parse_settle_ms("250"), Ok(Settle(Some(250))));
        parse_settle_ms("soon").expect_err("no number");
        parse_settle_ms("-1").expect_err("a wait is not negative");
    }
}
