//! Ctrl-C and SIGTERM, as one token that everything watches.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::error::CliError;

/// A token that is cancelled by the first SIGINT or SIGTERM. The second one ends the process at
/// once, for people who cannot wait.
pub fn on_signal() -> Result<CancellationToken, CliError> {
    let failed = |error| CliError::Failed(format!("cannot listen for signals: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            };
            if stop.is_cancelled() {
                tracing::warn!(signal = name, "stopping at once");
                std::process::exit(130);
            }
            tracing::info!(signal = name, "stopping");
            stop.cancel();
        }
    });
    Ok(token)
}
