//! `undolog unknown`: calls of which nobody knows whether they happened.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use undolog_proto::v1::{ListUnknownRequest, ResolveEffectRequest};

use super::value;
use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    input::FileArgs,
    out::Out,
    paged,
    views::{UnknownView, how_to_read},
};

/// Arguments of `undolog unknown`.
#[derive(Debug, Args)]
pub struct UnknownArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: UnknownVerb,
}

/// What to do with unknown outcomes.
#[derive(Debug, Subcommand)]
pub enum UnknownVerb {
    /// List them, the longest unknown first, with what is known.
    List(ListArgs),
    /// Show one of them with everything that is known.
    Show {
        /// The effect's id.
        effect_id: String,
    },
    /// Say what happened.
    Resolve(ResolveArgs),
}

/// Which to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only of this session.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Only calls of this tool.
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// The most to list; 0 lists all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub limit: u32,
}

/// What happened.
#[derive(Debug, Args)]
pub struct ResolveArgs {
    /// The effect's id.
    pub effect_id: String,
    /// Its session; looked up among the unknown effects if left out.
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// What happened.
    #[arg(long = "as", value_enum, value_name = "WHAT")]
    pub what: What,
    /// A JSON file with the call's result, when it happened; `-` reads stdin.
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// How it is known, for the journal.
    #[arg(long, value_name = "TEXT")]
    pub note: String,
}

/// What an operator says about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// It happened.
    Committed,
    /// It did not happen.
    NotApplied,
    /// It may have happened, and was undone by hand.
    Undone,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::NotApplied => "not_applied",
            Self::Undone => "undone",
        }
    }
}

/// Runs the verb.
pub async fn run(args: UnknownArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    match args.verb {
        UnknownVerb::List(list_args) => list(&api, list_args, out).await,
        UnknownVerb::Show { effect_id } => {
            let found = find(&api, &effect_id).await?;
            if out.is_json() {
                return out.json(&found);
            }
            out.record(found.record())?;
            let left_out = &found.effect.fields_left_out;
            value::hint(&how_to_read("effect", &effect_id, left_out), out)
        }
        UnknownVerb::Resolve(resolve_args) => resolve(&api, resolve_args, out).await,
    }
}

async fn read(api: &Api, args: &ListArgs) -> Result<Vec<UnknownView>, CliError> {
    paged::all(args.limit, async |page_size, page_token| {
        let request = ListUnknownRequest {
            org_id: api.org(),
            session_id: args.session.clone().unwrap_or_default(),
            tool_name: args.tool.clone().unwrap_or_default(),
            page_size,
            page_token,
            effect_id: String::new(),
        };
        let page = api.operator().list_unknown(api.request(request)).await?.into_inner();
        Ok((page.effects.iter().map(Into::into).collect(), page.next_page_token))
    })
    .await
}

async fn list(api: &Api, args: ListArgs, out: &Out) -> Result<(), CliError> {
    let effects = read(api, &args).await?;
    if out.is_json() {
        return out.json(&effects);
    }
    if effects.is_empty() {
        return out.line("no unknown outcomes");
    }
    out.table(&UnknownView::HEADERS, effects.iter().map(UnknownView::row).collect())
}

async fn resolve(api: &Api, args: ResolveArgs, out: &Out) -> Result<(), CliError> {
    let result = match (args.result, args.what) {
        (None, _) => Vec::new(),
        (Some(file), What::Committed) => FileArgs { file }.json()?,
        (Some(_), _) => {
            return Err(CliError::Usage("--result goes with --as committed".to_owned()));
        }
    };
    let session_id = match args.session {
        Some(session) => session,
        None => find(api, &args.effect_id).await?.effect.session_id,
    };
    let request = ResolveEffectRequest {
        org_id: api.org(),
        session_id,
        effect_id: args.effect_id.clone(),
        r#as: args.what.as_str().to_owned(),
        result,
        note: args.note,
    };
    let answer = api.operator().resolve_effect(api.request(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({
            "effect_id": args.effect_id,
            "effect_state": answer.effect_state,
            "session_state": answer.session_state,
        }));
    }
    out.line(format!(
        "the call is {}; the session is {}",
        answer.effect_state, answer.session_state
    ))
}

async fn find(api: &Api, effect_id: &str) -> Result<UnknownView, CliError> {
    let request = ListUnknownRequest {
        org_id: api.org(),
        effect_id: effect_id.to_owned(),
        ..ListUnknownRequest::default()
    };
    let page = api.operator().list_unknown(api.request(request)).await?.into_inner();
    page.effects.first().map(UnknownView::from).ok_or_else(|| CliError::Refused {
        reason: "EFFECT_NOT_FOUND".to_owned(),
        message: format!("{effect_id} is no effect of which nobody knows whether it happened"),
    })
}
