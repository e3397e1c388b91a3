//! What a proxy does beside requests: it says that proxies run, and finds out whether the engine
//! answers.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};
use tonic::Request;
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

async fn answered(proxy: &Proxy) -> bool {
    let nobody = Caller::default();
    let caller = proxy.executors.first().unwrap_or(&nobody);
    // Without a key the refusal is the answer.
    let request: Request<v1::TickRequest> = caller.stream(v1::TickRequest {});
    match proxy.channel.proxy().tick(request).await {
        Ok(_) => true,
        Err(status) => {
            let is_known = proxy.executors.is_empty();
            if !is_known {
                metrics::counter!("undolog_proxy_tick_failures_total").increment(1);
                tracing::warn!(error = %status, "a tick did not get through");
            }
            is_answer(&status)
        }
    }
}
