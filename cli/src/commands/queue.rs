//! `undolog queue`: pause and resume compensations, and see what is due, running and dead.

use clap::{Args, Subcommand};
use serde_json::json;
use undolog_proto::v1::{
    CloseBreakerRequest, GetQueueStatusRequest, PauseQueueRequest, QueueStatus, ResumeQueueRequest,
};

use super::notifications::{self, NotificationsVerb};
use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    out::Out,
    owner::OwnerArgs,
    views::{BreakerView, PauseView, QueueView},
};

/// Arguments of `undolog queue`.
#[derive(Debug, Args)]
pub struct QueueArgs {
    /// The engine.
    #[command(flatten)]
    pub api: ApiArgs,
    /// The database, for `--everywhere`.
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: QueueVerb,
}

/// What to do with the queue.
#[derive(Debug, Subcommand)]
pub enum QueueVerb {
    /// Call no compensation, or none of one function, until it is resumed.
    Pause(PauseArgs),
    /// Go on with what was paused.
    Resume(ResumeArgs),
    /// Call an endpoint again at once whose calls failed.
    CloseBreaker(CloseBreakerArgs),
    /// Show what is due, running, halted, paused and dead.
    Status,
    /// Webhooks that were given up.
    Notifications {
        /// What to do.
        #[command(subcommand)]
        verb: NotificationsVerb,
    },
}

/// What to pause.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// Only this compensation; every one of the organisation if left out.
    #[arg(long, value_name = "NAME", conflicts_with = "everywhere")]
    pub compensation: Option<String>,
    /// Every compensation of every organisation (owner's URL).
    #[arg(long)]
    pub everywhere: bool,
    /// Why, for those who find it paused.
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub reason: String,
}

/// What to resume.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Only this compensation; the pause of every one if left out.
    #[arg(long, value_name = "NAME", conflicts_with = "everywhere")]
    pub compensation: Option<String>,
    /// The pause of every organisation (owner's URL).
    #[arg(long)]
    pub everywhere: bool,
}

/// Which breakers to close.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct CloseBreakerArgs {
    /// Of this compensation; of every one if left out.
    #[arg(long, value_name = "NAME")]
    pub compensation: Option<String>,
    /// At this host, as `undolog queue status` shows it; at every one if left out.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
}

/// Runs the verb.
pub async fn run(args: QueueArgs, out: &Out) -> Result<(), CliError> {
    match args.verb {
        QueueVerb::Pause(pause) if pause.everywhere => {
            pause_everywhere(&args.owner, &pause.reason, out).await
        }
        QueueVerb::Resume(resume) if resume.everywhere => resume_everywhere(&args.owner, out).await,
        QueueVerb::Notifications { verb } => {
            notifications::run(&Api::connect(&args.api)?, verb, out).await
        }
        QueueVerb::Pause(pause) => {
            let api = Api::connect(&args.api)?;
            let request = PauseQueueRequest {
                org_id: api.org(),
                compensation_fn: pause.compensation.unwrap_or_default(),
                reason: pause.reason,
            };
            show(&api.operator().pause_queue(api.request(request)).await?.into_inner(), out)
        }
        QueueVerb::Resume(resume) => {
            let api = Api::connect(&args.api)?;
            let compensation_fn = resume.compensation.unwrap_or_default();
            let request = ResumeQueueRequest { org_id: api.org(), compensation_fn };
            show(&api.operator().resume_queue(api.request(request)).await?.into_inner(), out)
        }
        QueueVerb::CloseBreaker(breaker) => {
            let api = Api::connect(&args.api)?;
            let request = CloseBreakerRequest {
                org_id: api.org(),
                compensation_fn: breaker.compensation.unwrap_or_default(),
                host: breaker.host.unwrap_or_default(),
            };
            show(&api.operator().close_breaker(api.request(request)).await?.into_inner(), out)
        }
        QueueVerb::Status => {
            let api = Api::connect(&args.api)?;
            show(&read(&api).await?, out)
        }
    }
}

/// Reads the queue with all its pauses and breakers.
async fn read(api: &Api) -> Result<QueueStatus, CliError> {
    let mut page_token = String::new();
    let (mut pauses, mut breakers) = (Vec::new(), Vec::new());
    loop {
        let request = GetQueueStatusRequest { org_id: api.org(), page_token };
        let page = api.operator().get_queue_status(api.request(request)).await?.into_inner();
        pauses.extend(page.pauses);
        breakers.extend(page.breakers);
        page_token = page.next_page_token.clone();
        if page_token.is_empty() {
            return Ok(QueueStatus { pauses, breakers, ..page });
        }
    }
}

/// Prints the queue as it stands.
pub(crate) fn show(status: &QueueStatus, out: &Out) -> Result<(), CliError> {
    let view = QueueView::from(status);
    if out.is_json() {
        return out.json(&view);
    }
    out.record(view.record())?;
    if !view.pauses.is_empty() {
        out.line("\npauses")?;
        out.table(&PauseView::HEADERS, view.pauses.iter().map(PauseView::row).collect())?;
    }
    if !view.breakers.is_empty() {
        out.line("\nbreakers")?;
        out.table(&BreakerView::HEADERS, view.breakers.iter().map(BreakerView::row).collect())?;
    }
    if !status.next_page_token.is_empty() {
        out.line("(and more: undolog queue status)")?;
    }
    Ok(())
}

async fn pause_everywhere(owner: &OwnerArgs, reason: &str, out: &Out) -> Result<(), CliError> {
    let mut owner = owner.connect().await?;
    let pause = owner.pause_all("owner", reason).await?;
    owner.close().await?;
    let since = pause.paused_at.to_rfc3339();
    if out.is_json() {
        let by = pause.paused_by;
        return out.json(&json!({"paused_at": since, "paused_by": by, "reason": pause.reason}));
    }
    out.line(format!("every compensation of every organisation is paused since {since}"))
}

async fn resume_everywhere(owner: &OwnerArgs, out: &Out) -> Result<(), CliError> {
    let mut owner = owner.connect().await?;
    let ended = owner.resume_all().await?;
    owner.close().await?;
    if out.is_json() {
        return out.json(&json!({"resumed": ended.is_some()}));
    }
    match ended {
        Some(pause) => out.line(format!("resumed; it was paused since {}", pause.paused_at)),
        None => out.line("nothing was paused everywhere"),
    }
}
