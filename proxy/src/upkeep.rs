//! What a proxy does beside requests: it says that proxies run, and finds out whether the engine
//! answers.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tonic::{Request, Status};
use undolog_core::limits::{TICK_LATE_MS, TICK_MS};
use undolog_proto::v1;

use crate::{
    call::{Caller, is_answer},
    service::Proxy,
};

/// Ticks, or asks whether the engine answers, until the proxy stops.
pub(crate) async fn run(proxy: Arc<Proxy>) {
    let mut every = tokio::time::interval(Duration::from_millis(TICK_MS));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Instant> = None;
    loop {
        tokio::select! {
            () = proxy.stop.cancelled() => return,
            _ = every.tick() => {}
        }
        let answered = tokio::time::timeout(Duration::from_millis(TICK_MS), answered(&proxy)).await;
        if answered == Ok(true) {
            last = Some(Instant::now());
        }
        let late = Duration::from_millis(TICK_LATE_MS);
        let is_fresh = last.is_some_and(|at| at.elapsed() <= late);
        proxy.answers.store(is_fresh, Ordering::Relaxed);
        if !is_fresh {
            // Soon, not after a whole turn: callers wait for it.
            every.reset_after(Duration::from_millis(250));
        }
    }
}

async fn answered(proxy: &Arc<Proxy>) -> bool {
    if proxy.executors.is_empty() {
        // Without a key the refusal is the answer.
        return match tick(proxy, &Caller::default()).await {
            Ok(()) => true,
            Err(status) => is_answer(&status),
        };
    }
    // Each organisation hears its own: another's ticks say nothing to it.
    let mut ticks = JoinSet::new();
    for caller in &proxy.executors {
        let (proxy, caller) = (Arc::clone(proxy), caller.clone());
        ticks.spawn(async move { tick(&proxy, &caller).await });
    }
    let mut has_answer = false;
    while let Some(ticked) = ticks.join_next().await {
        match ticked {
            Ok(Ok(())) => has_answer = true,
            Ok(Err(status)) => {
                metrics::counter!("undolog_proxy_tick_failures_total").increment(1);
                tracing::warn!(error = %status, "a tick did not get through");
                has_answer |= is_answer(&status);
            }
            Err(error) => tracing::error!(%error, "a tick broke"),
        }
    }
    has_answer
}

async fn tick(proxy: &Proxy, caller: &Caller) -> Result<(), Status> {
    let message = v1::TickRequest { proxy_id: proxy.id.to_string() };
    let request: Request<v1::TickRequest> = caller.stream(message);
    proxy.channel.proxy().tick(request).await.map(|_| ())
}
