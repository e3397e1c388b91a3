//! `undolog demo`: an agent's run against a small real HTTP service fails at its fourth call, and
//! everything that it had done is undone, last call first.
//!
//! The engine, the worker and the service are processes of their own, so that `--crash` can kill
//! the first two without warning: once after a grant, and once while an undoing call is under way.

mod agent;
mod check;
mod http;
mod process;
mod screen;
mod stage;
mod watch;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use secrecy::SecretString;

use crate::{
    commands::{demo_service::World, sessions},
    error::CliError,
    out::Out,
    shutdown,
};

use agent::Agent;
use check::Outcome;
use screen::Screen;
use stage::Stage;

/// How long the whole run may take; a killed worker's claim has to run out in a run with crashes.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_WITH_CRASHES: Duration = Duration::from_secs(180);

/// Arguments of `undolog demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Kill the engine and the worker with SIGKILL in the middle, twice, and start them again.
    #[arg(long)]
    pub crash: bool,
    /// Use this database instead of a private one.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    pub database_url: Option<SecretString>,
    /// Take the private Postgres' programs from this folder.
    #[arg(long, env = "UNDOLOG_PG_BIN", value_name = "FOLDER")]
    pub pg_bin: Option<PathBuf>,
    /// Use the engine and worker that run there, as `undolog dev` does, instead of own ones.
    #[arg(long, value_name = "URL", conflicts_with = "crash")]
    pub engine_url: Option<String>,
    /// Keep the private database and the processes' logs.
    #[arg(long)]
    pub keep: bool,
}

/// Plays the demonstration; it ends well only if the service's state is what it was.
pub async fn run(args: DemoArgs, out: &Out) -> Result<(), CliError> {
    let stop = shutdown::on_signal()?;
    let patience = if args.crash { PATIENCE_WITH_CRASHES } else { PATIENCE };
    let screen = Screen::new(*out);
    let mut stage = Stage::build(&args, &screen).await?;
    let played = tokio::select! {
        played = tokio::time::timeout(patience, play(&args, &mut stage, &screen)) => played
            .unwrap_or_else(|_| {
                let seconds = patience.as_secs();
                Err(CliError::Failed(format!("the demonstration took longer than {seconds} s")))
            }),
        () = stop.cancelled() => Err(CliError::Failed("the demonstration was stopped".to_owned())),
    };
    if !matches!(played, Ok(_) | Err(CliError::ReaderGone)) {
        stage.show_logs();
    }
    stage.clear(args.keep).await;
    let outcome = played?;
    screen.verdict(&outcome)?;
    if outcome.is_good() {
        return Ok(());
    }
    Err(CliError::Failed("something that must be true at the end is not".to_owned()))
}

/// One run from the first call to the last look at the service.
async fn play(args: &DemoArgs, stage: &mut Stage, screen: &Screen) -> Result<Outcome, CliError> {
    let before = stage.service.world().await?;
    let agent = Agent::begin(stage.agent.clone(), stage.service.clone()).await?;
    stage.register().await?;
    screen.title("An agent takes an order: four calls, each recorded before it runs.")?;
    let mut done = Vec::new();
    for (index, call) in agent::CALLS.iter().enumerate() {
        let execute = agent.intercept(index, call, &done).await?;
        let reply = agent.perform(call, &done).await?;
        if args.crash && index == 2 {
            screen.note(
                "SIGKILL: engine and worker die before the outcome is reported, and start again",
            )?;
            stage.crash().await?;
        }
        screen.call(index, call, &reply)?;
        agent.report(&execute, &reply).await?;
        done.push(reply);
    }
    screen.title("The fourth call failed. What was done is undone, last call first:")?;
    let session_id = agent.session_id.clone();
    let admin = stage.admin.clone();
    let watching = watch::until_over(&admin, &session_id, screen);
    if args.crash {
        tokio::try_join!(watching, crash_in_the_walk(stage, screen))?;
    } else {
        watching.await?;
    }
    finish(stage, before, &session_id).await
}

/// Kills both processes when the second undoing call has been applied but not answered.
async fn crash_in_the_walk(stage: &mut Stage, screen: &Screen) -> Result<(), CliError> {
    while stage.service.undo_calls().await?.len() < stage::STALLED_UNDO {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    screen.note(
        "SIGKILL: both die while an undoing call is under way; their claim runs out after 30 s",
    )?;
    stage.crash().await
}

async fn finish(stage: &Stage, before: World, session_id: &str) -> Result<Outcome, CliError> {
    let after = stage.service.world().await?;
    let undo_calls = stage.service.undo_calls().await?;
    let session = sessions::read(&stage.admin, session_id).await?;
    let events = watch::history(&stage.admin, session_id).await?;
    Ok(Outcome { before, after, undo_calls, session, events })
}
