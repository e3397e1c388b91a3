//! What the process writes about itself: one subscriber, set up once, on stderr.

use std::io::IsTerminal as _;

use tracing_subscriber::{EnvFilter, fmt};

use crate::{
    args::{LogArgs, LogFormat},
    error::CliError,
};

/// Sets the process' subscriber up.
pub fn init(args: &LogArgs) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(&args.filter)
        .map_err(|error| CliError::Usage(format!("--log {}: {error}", args.filter)))?;
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let set = match args.format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
    };
    set.map_err(|error| CliError::Failed(format!("cannot set logging up: {error}")))
}
