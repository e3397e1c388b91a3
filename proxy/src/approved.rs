//! Runs approved calls of upstream tools, without being asked again. Any proxy may try; the grant
//! decides.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;
use undolog_proto::v1;

use crate::{
    call::{Caller, rpc},
    error::Refused,
    outcome,
    service::Proxy,
};

/// How often a proxy looks for approved calls.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest pause before a call that was refused is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Pages of one look; the next look goes on behind them.
const PAGES_MAX: usize = 10;

/// Calls that were refused, and when each is tried again.
type Refusals = HashMap<String, (u32, Instant)>;

/// Looks, runs and looks again until the proxy stops.
pub(crate) async fn run(proxy: Arc<Proxy>, executor: Caller) {
    let mut refusals = Refusals::new();
    let mut page_token = String::new();
    loop {
        let heard = proxy.approved.notified();
        tokio::select! {
            () = proxy.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = heard => {}
        }
        let now = Instant::now();
        refusals.retain(|_, (_, at)| *at + PAUSE_MAX > now);
        for _ in 0..PAGES_MAX {
            match look(&proxy, &executor, std::mem::take(&mut page_token)).await {
                Ok(page) => {
                    page_token = page.next_page_token;
                    start(&proxy, &executor, page.calls, &mut refusals).await;
                }
                Err(refused) => {
                    tracing::debug!(code = %refused.code, "approved calls are not listed");
                }
            }
            if page_token.is_empty() {
                break;
            }
        }
    }
}

async fn look(
    proxy: &Proxy,
    executor: &Caller,
    page_token: String,
) -> Result<v1::ListApprovedResponse, Refused> {
    let request = v1::ListApprovedRequest { org_id: String::new(), page_token };
    rpc!(executor.once: proxy.proxy().list_approved(request))
}

/// Asks for the grant of each call. The calls themselves run on their own.
async fn start(
    proxy: &Arc<Proxy>,
    executor: &Caller,
    calls: Vec<v1::ApprovedCall>,
    refusals: &mut Refusals,
) {
    for call in calls {
        let approval_id = call.approval_id.clone();
        let now = Instant::now();
        if refusals.get(&approval_id).is_some_and(|(_, at)| *at > now) {
            continue;
        }
        let Err(refused) = outcome::begin(proxy, executor, asked(call)).await else { continue };
        // Another proxy has it, or nobody may run it now.
        tracing::debug!(approval.id = %approval_id, code = %refused.code, "not granted");
        let (tries, at) = refusals.entry(approval_id).or_insert((0, now));
        *tries = tries.saturating_add(1);
        *at = now + (LOOK_EVERY * 2_u32.saturating_pow(*tries)).min(PAUSE_MAX);
    }
}

fn asked(call: v1::ApprovedCall) -> v1::InterceptRequest {
    v1::InterceptRequest {
        tool_call: Some(v1::ToolCall {
            session_id: call.session_id,
            tool_name: call.tool_name,
            tool_version: call.tool_version,
            step_index: call.step_index,
            args: call.args,
            ..v1::ToolCall::default()
        }),
        step_key: call.step_key,
        accepts_approved_args: true,
        ..v1::InterceptRequest::default()
    }
}
