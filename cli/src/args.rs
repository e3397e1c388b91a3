//! The command line: what every subcommand shares, and the list of subcommands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::{
    approvals::ApprovalsArgs, compensations::CompensationsArgs, dead_letters::DeadLettersArgs,
    demo::DemoArgs, demo_service::DemoServiceArgs, dev::DevArgs, engine::EngineArgs,
    keys::KeysArgs, migrate::MigrateArgs, orgs::OrgsArgs, projects::ProjectsArgs, proxy::ProxyArgs,
    queue::QueueArgs, sessions::SessionsArgs, tools::ToolsArgs, unknown::UnknownArgs,
    worker::WorkerArgs,
};

/// A transactional undo engine for AI agents: every tool call is recorded before it runs, and what
/// a failed run did is undone, last call first.
#[derive(Debug, Parser)]
#[command(name = "undolog", version, arg_required_else_help = true)]
pub struct Cli {
    /// Options of every subcommand.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every subcommand.
#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// Configuration file; each of its keys is the long option of the same name.
    #[arg(long, global = true, env = "UNDOLOG_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub json: bool,
    /// What the process writes about itself.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What the process writes about itself, on stderr.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Which messages are written: a level, or `target=level` pairs.
    #[arg(long = "log", global = true, env = "UNDOLOG_LOG", value_name = "FILTER")]
    #[arg(default_value = "warn,sqlx=error,undolog=info")]
    pub filter: String,
    /// How messages are written.
    #[arg(long = "log-format", global = true, env = "UNDOLOG_LOG_FORMAT", value_enum)]
    #[arg(default_value = "text")]
    pub format: LogFormat,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gRPC engine, which records effects.
    Engine(EngineArgs),
    /// Run a worker, which undoes effects and watches over leases.
    Worker(WorkerArgs),
    /// Run the HTTP face, which talks to an engine.
    Proxy(ProxyArgs),
    /// Run everything in one process, with a private Postgres, for development.
    Dev(DevArgs),
    /// Watch an agent's run fail and be undone.
    Demo(DemoArgs),
    /// The HTTP service that the demonstration changes.
    #[command(hide = true)]
    DemoService(DemoServiceArgs),
    /// Make one compensation call: how a worker calls what may have ended a worker before.
    #[command(hide = true)]
    CompensationCall,
    /// Bring a database to the schema of this build (owner's URL).
    Migrate(MigrateArgs),
    /// Organisations: their timeouts and policies (owner's URL).
    Orgs(OrgsArgs),
    /// Projects of an organisation (owner's URL).
    Projects(ProjectsArgs),
    /// API keys (owner's URL).
    Keys(KeysArgs),
    /// Tools and their tiers.
    Tools(ToolsArgs),
    /// Compensations: how a call is undone.
    Compensations(CompensationsArgs),
    /// Agents' runs: what they did, and how it is undone.
    Sessions(SessionsArgs),
    /// Irreversible calls that wait for a human.
    Approvals(ApprovalsArgs),
    /// Calls of which nobody knows whether they happened.
    Unknown(UnknownArgs),
    /// What only a human can settle.
    DeadLetters(DeadLettersArgs),
    /// Pause and resume compensations, and see what is due.
    Queue(QueueArgs),
}
