//! What a proxy does beside requests: it says that proxies run, and follows whether its engine is
//! ready.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior},
};
use tonic::{Request, Status};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
use undolog_core::limits::TICK_MS;
use undolog_proto::{READY, v1};

use crate::{
    call::{Caller, is_answer},
    service::Proxy,
};

/// How often the engine is asked whether it is ready, and how long it may take to answer. One slow
/// answer says nothing yet; none for [`SILENT_FOR`] does.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const LOOK_TIME: Duration = Duration::from_millis(1_200);
const SILENT_FOR: Duration = Duration::from_millis(1_200);

/// Follows whether the engine is ready, until the proxy stops.
pub(crate) async fn follow(proxy: Arc<Proxy>) {
    let mut last: Option<Instant> = None;
    loop {
        let is_ready = match tokio::time::timeout(LOOK_TIME, is_engine_ready(&proxy)).await {
            Ok(is_ready) => is_ready,
            Err(_) => last.is_some_and(|at| at.elapsed() < SILENT_FOR),
        };
        if is_ready {
            last = Some(Instant::now());
        }
        proxy.answers.store(is_ready, Ordering::Relaxed);
        tokio::select! {
            () = proxy.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn is_engine_ready(proxy: &Proxy) -> bool {
    let asked = HealthCheckRequest { service: READY.to_owned() };
    match proxy.channel.health().check(asked).await {
        Ok(answer) => answer.into_inner().status() == ServingStatus::Serving,
        // An older engine, which knows no such name: that it answers is all that it can say.
        Err(status) => is_answer(&status),
    }
}

/// Ticks with each key of this proxy, until it stops.
pub(crate) async fn run(proxy: Arc<Proxy>) {
    if proxy.executors.is_empty() {
        return;
    }
    let mut every = tokio::time::interval(Duration::from_millis(TICK_MS));
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = proxy.stop.cancelled() => return,
            _ = every.tick() => {}
        }
        let ticked = tokio::time::timeout(Duration::from_millis(TICK_MS), ticks(&proxy)).await;
        if ticked != Ok(true) {
            // Soon, not after a whole turn: sessions are kept by it.
            every.reset_after(Duration::from_millis(250));
        }
    }
}

/// Whether a tick got through. Each organisation hears its own: another's ticks say nothing to it.
async fn ticks(proxy: &Arc<Proxy>) -> bool {
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
