//! `undolog sessions`: list them, show one with its effects and undo stack, roll one back, read its
//! events, settle a halted one, and hold the brake on a mass expiry.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use undolog_proto::v1::{
    Effect, GetSessionRequest, GetSessionResponse, ListEffectsRequest, ListSessionsRequest,
    ResolveEffectRequest, RollbackRequest, SetBrakeRequest, SettleSessionRequest,
    WatchEventsRequest, rollback_request::Scope,
};

use super::{queue, sessions_watch, value};
use crate::{
    api::{Api, ApiArgs},
    confirm::confirm,
    error::CliError,
    out::Out,
    views::{
        DeadLetterView, EffectView, EventView, PlanView, PlannedUndoView, ResidueView,
        RollbackView, SessionDetailView, SessionView, UndoEntryView, how_to_read,
    },
};

/// The most sessions of one page.
const PAGE_MAX: u32 = 500;

/// Arguments of `undolog sessions`.
#[derive(Debug, Args)]
pub struct SessionsArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// Keep the newest sessions in sight, as they change.
    #[arg(long)]
    pub watch: bool,
    /// Only sessions in this state; may be given more than once. With `--watch`.
    #[arg(long = "state", value_name = "STATE", requires = "watch")]
    pub states: Vec<String>,
    /// What to do.
    #[command(subcommand)]
    pub verb: Option<SessionsVerb>,
}

/// What to do with sessions.
#[derive(Debug, Subcommand)]
pub enum SessionsVerb {
    /// List sessions, newest first.
    List(ListArgs),
    /// Show a session with its effects, undo stack, rollbacks and dead letters.
    Show {
        /// The session's id.
        session_id: String,
    },
    /// Write one field of a row to standard output, as it was recorded, however large.
    Value(value::ValueArgs),
    /// Undo a session's effects, last call first.
    Rollback(RollbackArgs),
    /// Read the events of a session.
    Events(EventsArgs),
    /// Have a call undone once more whose compensation succeeded and has not undone it.
    Reopen {
        /// The session's id.
        session_id: String,
        /// The effect's id.
        effect_id: String,
        /// How it is known, for the journal.
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Let a halted session leave the lists; it stays halted.
    Settle {
        /// The session's id.
        session_id: String,
        /// Why nothing more is to be done, for the journal.
        #[arg(long, value_name = "TEXT")]
        note: String,
    },
    /// Hold or release the failing of sessions whose lease ran out.
    Brake {
        /// What holds from now on.
        #[arg(value_enum)]
        order: BrakeOrder,
        /// Do not ask before every lost session fails at once.
        #[arg(long, short)]
        yes: bool,
    },
}

/// What holds for sessions whose lease ran out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BrakeOrder {
    /// None fails until this is taken back.
    Stop,
    /// Every one fails, however many.
    Force,
    /// The workers decide again.
    Release,
}

impl BrakeOrder {
    fn state(self) -> &'static str {
        match self {
            Self::Stop => "stopped",
            Self::Force => "forced",
            Self::Release => "released",
        }
    }
}

/// Which sessions to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only sessions in this state; may be given more than once.
    #[arg(long = "state", value_name = "STATE")]
    pub states: Vec<String>,
    /// Only sessions of this run of the caller's own system.
    #[arg(long, value_name = "ID")]
    pub external_run_id: Option<String>,
    /// The most sessions to list; 0 lists all.
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub limit: u32,
}

/// What to roll back.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// The session's id.
    pub session_id: String,
    /// Show what would be called, in order, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Undo only the steps above this one.
    #[arg(long, value_name = "STEP", conflicts_with = "to_savepoint")]
    pub to_step: Option<u32>,
    /// Undo only the positions at or above this savepoint.
    #[arg(long, value_name = "POSITION")]
    pub to_savepoint: Option<u32>,
    /// Go on although committed irreversible effects in the scope will stay.
    #[arg(long)]
    pub allow_residue: bool,
    /// Why, for the history.
    #[arg(long, default_value = "requested on the command line", value_name = "TEXT")]
    pub reason: String,
}

/// Which events to read.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// The session's id; all sessions of the organisation if left out.
    pub session_id: Option<String>,
    /// Stay and print what comes.
    #[arg(long, short)]
    pub follow: bool,
    /// Skip the history.
    #[arg(long)]
    pub from_now: bool,
    /// Start after the event with this cursor.
    #[arg(long)]
    pub cursor: Option<String>,
}

/// Runs the verb.
pub async fn run(args: SessionsArgs, out: &Out) -> Result<(), CliError> {
    let api = Api::connect(&args.api)?;
    let Some(verb) = args.verb else {
        if args.watch {
            return sessions_watch::run(&api, &args.states, out).await;
        }
        return Err(CliError::Usage("name a verb, or --watch; --help lists them".to_owned()));
    };
    match verb {
        SessionsVerb::List(list_args) => list(&api, list_args, out).await,
        SessionsVerb::Show { session_id } => show(&api, session_id, out).await,
        SessionsVerb::Value(value_args) => value::run(&api, value_args, out).await,
        SessionsVerb::Rollback(rollback_args) => rollback(&api, rollback_args, out).await,
        SessionsVerb::Events(events_args) => events(&api, events_args, out).await,
        SessionsVerb::Reopen { session_id, effect_id, note } => {
            reopen(&api, session_id, effect_id, note, out).await
        }
        SessionsVerb::Settle { session_id, note } => settle(&api, session_id, note, out).await,
        SessionsVerb::Brake { order, yes } => brake(&api, order, yes, out).await,
    }
}

async fn list(api: &Api, args: ListArgs, out: &Out) -> Result<(), CliError> {
    let mut sessions: Vec<SessionView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let found = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        let page_size = match args.limit {
            0 => PAGE_MAX,
            limit => (limit.saturating_sub(found)).min(PAGE_MAX),
        };
        if page_size == 0 {
            break;
        }
        let request = ListSessionsRequest {
            org_id: api.org(),
            states: args.states.clone(),
            page_size,
            page_token,
            external_run_id: args.external_run_id.clone().unwrap_or_default(),
        };
        let page = api.sessions().list(api.request(request)).await?.into_inner();
        sessions.extend(page.sessions.iter().map(Into::into));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if out.is_json() {
        return out.json(&sessions);
    }
    if sessions.is_empty() {
        return out.line("no sessions");
    }
    out.table(&SessionView::HEADERS, sessions.iter().map(SessionView::row).collect())
}

/// Reads a session with everything that belongs to it, page by page.
pub(crate) async fn read(api: &Api, session_id: &str) -> Result<SessionDetailView, CliError> {
    let session = read_session(api, session_id).await?;
    let mut effects: Vec<Effect> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListEffectsRequest {
            org_id: api.org(),
            session_id: session_id.to_owned(),
            page_size: 0,
            page_token,
        };
        let page = api.sessions().list_effects(api.request(request)).await?.into_inner();
        effects.extend(page.effects);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(SessionDetailView::new(&session, &effects));
        }
    }
}

/// Reads a session with all pages of its undo stack, rollbacks and dead letters. Each of the lists
/// has tokens of its own, and a page of one comes with the first pages of the others.
async fn read_session(api: &Api, session_id: &str) -> Result<GetSessionResponse, CliError> {
    let first = get(api, session_id, GetSessionRequest::default()).await?;
    let mut all = first.clone();
    let mut token = first.undo_next_page_token;
    while !token.is_empty() {
        let asked = GetSessionRequest { undo_page_token: token, ..Default::default() };
        let page = get(api, session_id, asked).await?;
        all.undo_stack.extend(page.undo_stack);
        token = page.undo_next_page_token;
    }
    let mut token = first.rollbacks_next_page_token;
    while !token.is_empty() {
        let asked = GetSessionRequest { rollbacks_page_token: token, ..Default::default() };
        let page = get(api, session_id, asked).await?;
        all.rollbacks.extend(page.rollbacks);
        token = page.rollbacks_next_page_token;
    }
    let mut token = first.dead_letters_next_page_token;
    while !token.is_empty() {
        let asked = GetSessionRequest { dead_letters_page_token: token, ..Default::default() };
        let page = get(api, session_id, asked).await?;
        all.dead_letters.extend(page.dead_letters);
        token = page.dead_letters_next_page_token;
    }
    Ok(all)
}

async fn get(
    api: &Api,
    session_id: &str,
    asked: GetSessionRequest,
) -> Result<GetSessionResponse, CliError> {
    let request =
        GetSessionRequest { org_id: api.org(), session_id: session_id.to_owned(), ..asked };
    Ok(api.sessions().get(api.request(request)).await?.into_inner())
}

async fn show(api: &Api, session_id: String, out: &Out) -> Result<(), CliError> {
    let detail = read(api, &session_id).await?;
    if out.is_json() {
        return out.json(&detail);
    }
    out.record(detail.session.record())?;
    let effects = detail.effects.iter().map(EffectView::row).collect();
    section(out, "effects", &EffectView::HEADERS, effects)?;
    let stack = detail.undo_stack.iter().map(UndoEntryView::row).collect();
    section(out, "undo stack", &UndoEntryView::HEADERS, stack)?;
    let rollbacks = detail.rollbacks.iter().map(RollbackView::row).collect();
    section(out, "rollbacks", &RollbackView::HEADERS, rollbacks)?;
    let letters = detail.dead_letters.iter().map(DeadLetterView::row).collect();
    section(out, "dead letters", &DeadLetterView::HEADERS, letters)?;
    let mut hints = Vec::new();
    for effect in &detail.effects {
        hints.extend(how_to_read("effect", &effect.effect_id, &effect.fields_left_out));
    }
    for entry in &detail.undo_stack {
        hints.extend(how_to_read("undo_entry", &entry.undo_id, &entry.fields_left_out));
    }
    for letter in &detail.dead_letters {
        hints.extend(how_to_read("dead_letter", &letter.dead_letter_id, &letter.fields_left_out));
    }
    value::hint(&hints, out)
}

fn section(
    out: &Out,
    title: &str,
    headers: &[&str],
    rows: Vec<Vec<String>>,
) -> Result<(), CliError> {
    if rows.is_empty() {
        return Ok(());
    }
    out.line(format!("\n{title}"))?;
    out.table(headers, rows)
}

async fn rollback(api: &Api, args: RollbackArgs, out: &Out) -> Result<(), CliError> {
    let scope = match (args.to_savepoint, args.to_step) {
        (Some(position), _) => Some(Scope::ToSavepoint(position)),
        (None, Some(step)) => Some(Scope::ToStep(step)),
        (None, None) => None,
    };
    let mut request = RollbackRequest {
        org_id: api.org(),
        session_id: args.session_id,
        reason: args.reason,
        scope,
        allow_residue: args.allow_residue,
        dry_run: args.dry_run,
        page_token: String::new(),
    };
    let answer = api.sessions().rollback(api.request(request.clone())).await?.into_inner();
    let mut view = PlanView::from(&answer);
    while !view.next_page_token.is_empty() {
        request.page_token = view.next_page_token.clone();
        let answer = api.sessions().rollback(api.request(request.clone())).await?.into_inner();
        view.add(PlanView::from(&answer));
    }
    if out.is_json() {
        return out.json(&view);
    }
    match &view.rollback_id {
        Some(id) => out.line(format!("rollback {id}: the session is {}", view.state))?,
        None => out.line(format!("nothing was changed; the session is {}", view.state))?,
    }
    let plan = view.plan.iter().map(PlannedUndoView::row).collect();
    section(out, "to undo, in this order", &PlannedUndoView::HEADERS, plan)?;
    if view.truncated {
        out.line("(and more: the list was cut)")?;
    }
    let residue = view.residue.iter().map(ResidueView::row).collect();
    section(out, "irreversible effects that stay", &ResidueView::HEADERS, residue)?;
    if !view.voided_approvals.is_empty() {
        out.line(format!("\napprovals voided: {}", view.voided_approvals.join(", ")))?;
    }
    let calls = view.plan.iter();
    let hints = calls.flat_map(|c| how_to_read("next_call", &c.undo_id, &c.fields_left_out));
    value::hint(&hints.collect::<Vec<_>>(), out)
}

async fn events(api: &Api, args: EventsArgs, out: &Out) -> Result<(), CliError> {
    let request = WatchEventsRequest {
        org_id: api.org(),
        session_id: args.session_id.unwrap_or_default(),
        cursor: args.cursor.unwrap_or_default(),
        follow: args.follow,
        from_now: args.from_now,
    };
    // A stream that follows has no deadline.
    let mut stream = api.sessions().watch_events(request).await?.into_inner();
    let mut history: Vec<Vec<String>> = Vec::new();
    while let Some(event) = stream.message().await? {
        let view = EventView::from(&event);
        if out.is_json() {
            out.json_line(&view)?;
        } else if args.follow {
            out.line(view.row().join("  "))?;
        } else {
            history.push(view.row());
        }
    }
    if out.is_json() || args.follow {
        return Ok(());
    }
    out.table(&EventView::HEADERS, history)
}

async fn reopen(
    api: &Api,
    session_id: String,
    effect_id: String,
    note: String,
    out: &Out,
) -> Result<(), CliError> {
    let request = ResolveEffectRequest {
        org_id: api.org(),
        session_id,
        effect_id: effect_id.clone(),
        r#as: "not_undone".to_owned(),
        result: Vec::new(),
        note,
    };
    let answer = api.operator().resolve_effect(api.request(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({
            "effect_id": effect_id,
            "effect_state": answer.effect_state,
            "session_state": answer.session_state,
        }));
    }
    let state = answer.effect_state;
    out.line(format!("it is undone once more, under a new key; the call is {state}"))
}

async fn settle(api: &Api, session_id: String, note: String, out: &Out) -> Result<(), CliError> {
    let request = SettleSessionRequest { org_id: api.org(), session_id: session_id.clone(), note };
    let answer = api.operator().settle_session(api.request(request)).await?.into_inner();
    if out.is_json() {
        return out.json(&json!({"session_id": session_id, "state": answer.state}));
    }
    out.line(format!("settled; the session stays {} and leaves the lists", answer.state))
}

async fn brake(api: &Api, order: BrakeOrder, yes: bool, out: &Out) -> Result<(), CliError> {
    if order == BrakeOrder::Force {
        confirm("fail every session whose lease ran out, however many", yes)?;
    }
    let request = SetBrakeRequest { org_id: api.org(), state: order.state().to_owned() };
    let answer = api.operator().set_brake(api.request(request)).await?.into_inner();
    queue::show(&answer, out)
}
