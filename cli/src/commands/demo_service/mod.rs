//! `undolog demo-service`: the small HTTP service with state that the demonstration changes.
//!
//! It knows nothing of UndoLog. Creating calls answer the id of what they made; undoing calls are
//! idempotent by their `Idempotency-Key`, as a careful service's are, and it remembers every one of
//! them, so that the demonstration can count what was really applied.

mod routes;
mod state;

use std::net::{Ipv4Addr, SocketAddr};

use clap::Args;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{error::CliError, out::Out, shutdown};

pub(crate) use state::{UndoCall, World};

/// Arguments of `undolog demo-service`.
#[derive(Debug, Args)]
pub struct DemoServiceArgs {
    /// Port on the loopback address; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// How long every undoing call takes, so that a person can watch.
    #[arg(long, default_value_t = 0)]
    pub undo_delay_ms: u64,
    /// Apply this undoing call (the first is 1) but keep its caller waiting for a minute.
    #[arg(long)]
    pub stall_undo: Option<usize>,
}

/// Serves until a signal comes. The first line of the output says where.
pub async fn run(args: DemoServiceArgs, out: &Out) -> Result<(), CliError> {
    let stop = shutdown::on_signal()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let failed = |error| CliError::Failed(format!("the demo service cannot serve: {error}"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    out.json_line(&json!({"url": format!("http://{address}")}))?;
    let router = routes::router(args.undo_delay_ms, args.stall_undo);
    axum::serve(listener, router)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .map_err(failed)
}
