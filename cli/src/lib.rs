//! The `undolog` command: servers, operators' verbs, a development server and a demonstration.
//!
//! Each subcommand is a file of [`commands`] with its arguments and a `run`. What they share:
//! [`config`] (flags, environment, file, defaults, in this order), [`out`] (tables or JSON),
//! [`error`] (what goes to stderr, and the exit code), [`api`] (gRPC with a key) and [`owner`] (the
//! owner's database URL).

pub mod api;
pub mod args;
pub mod commands;
pub mod config;
mod confirm;
pub mod database;
pub mod error;
pub mod input;
pub mod out;
pub mod owner;
mod paged;
pub mod postgres;
pub mod shutdown;
pub mod telemetry;
pub mod views;

use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

pub use args::{Cli, Command};

use crate::{error::CliError, out::Out};

/// Parses the command line, runs the subcommand and answers its exit code.
pub fn run() -> ExitCode {
    let cli = match config::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(config::ParseError::Clap(error)) => {
            // A closed stdout is the reader's decision, not a failure of ours.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { error::USAGE } else { error::OK });
        }
        Err(config::ParseError::File(message)) => {
            return error::report(&CliError::Usage(message), false);
        }
    };
    let out = Out::new(cli.global.json);
    if let Err(error) = telemetry::init(&cli.global.log) {
        return error::report(&error, out.is_json());
    }
    let runtime = match runtime_for(&cli.command) {
        Ok(runtime) => runtime,
        Err(error) => {
            let error = CliError::Failed(format!("cannot start the runtime: {error}"));
            return error::report(&error, out.is_json());
        }
    };
    match runtime.block_on(dispatch(cli.command, &out)) {
        Ok(()) | Err(CliError::ReaderGone) => ExitCode::from(error::OK),
        Err(error) => error::report(&error, out.is_json()),
    }
}

fn runtime_for(command: &Command) -> std::io::Result<Runtime> {
    match command {
        // One call needs one thread, and its memory has a limit.
        Command::CompensationCall => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    }
    .enable_all()
    .build()
}

async fn dispatch(command: Command, out: &Out) -> Result<(), CliError> {
    match command {
        Command::Engine(args) => commands::engine::run(args).await,
        Command::Worker(args) => commands::worker::run(args).await,
        Command::Proxy(args) => commands::proxy::run(args).await,
        Command::Dev(args) => commands::dev::run(args, out).await,
        Command::Demo(args) => commands::demo::run(args, out).await,
        Command::DemoService(args) => commands::demo_service::run(args, out).await,
        Command::CompensationCall => commands::compensation_call::run().await,
        Command::Migrate(args) => commands::migrate::run(args, out).await,
        Command::Orgs(args) => commands::orgs::run(args, out).await,
        Command::Projects(args) => commands::projects::run(args, out).await,
        Command::Keys(args) => commands::keys::run(args, out).await,
        Command::Tools(args) => commands::tools::run(args, out).await,
        Command::Compensations(args) => commands::compensations::run(args, out).await,
        Command::Sessions(args) => commands::sessions::run(args, out).await,
        Command::Approvals(args) => commands::approvals::run(args, out).await,
        Command::Unknown(args) => commands::unknown::run(args, out).await,
        Command::DeadLetters(args) => commands::dead_letters::run(args, out).await,
        Command::Queue(args) => commands::queue::run(args, out).await,
    }
}
