//! What humans do in these tests: they see requests and decide.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use undolog_proto::v1::intercept_response::Outcome;
use undolog_proto::v1::{
    Approval, ApproveRequest, ApproveResponse, AwaitingApprovalOutcome, GetApprovalRequest,
    GetApprovalResponse, RejectRequest, RevokeApprovalRequest,
};
use undolog_tests::world::{Agent, Client, ToolSpec};
use undolog_tests::{World, within};

/// Registers `wire`, which cannot be undone, and `charge`, which can.
pub(crate) async fn tools(world: &World) {
    world.tool(ToolSpec::irreversible("wire")).await;
    world.tool(ToolSpec::compensable("charge")).await;
}

/// Asks for a new step of `wire` and expects that it waits.
pub(crate) async fn asked(agent: &mut Agent, args: &Value) -> AwaitingApprovalOutcome {
    let request = agent.request("wire", args);
    waits(agent.ask(request).await)
}

/// Expects AwaitingApproval.
pub(crate) fn waits(outcome: Result<Outcome, Status>) -> AwaitingApprovalOutcome {
    match outcome {
        Ok(Outcome::AwaitingApproval(waiting)) => waiting,
        other => panic!("expected a wait for approval, got {other:?}"),
    }
}

pub(crate) async fn approve(client: &Client, approval: &str) -> Result<ApproveResponse, Status> {
    approve_with(client, approval, None).await
}

pub(crate) async fn approve_with(
    client: &Client,
    approval: &str,
    args: Option<&Value>,
) -> Result<ApproveResponse, Status> {
    let request = ApproveRequest {
        approval_id: approval.to_owned(),
        approved_args: args.map(|args| args.to_string().into_bytes()).unwrap_or_default(),
        note: "the test says so".to_owned(),
        ..ApproveRequest::default()
    };
    Ok(client.engine().approve(request).await?.into_inner())
}

pub(crate) async fn reject(client: &Client, approval: &str) -> Result<(), Status> {
    let request = RejectRequest {
        approval_id: approval.to_owned(),
        note: "the test says no".to_owned(),
        ..RejectRequest::default()
    };
    client.engine().reject(request).await.map(|_| ())
}

pub(crate) async fn revoke(client: &Client, approval: &str) -> Result<(), Status> {
    let request = RevokeApprovalRequest {
        approval_id: approval.to_owned(),
        ..RevokeApprovalRequest::default()
    };
    client.operator().revoke_approval(request).await.map(|_| ())
}

/// The request with every decision about it.
pub(crate) async fn shown(client: &Client, approval: &str) -> GetApprovalResponse {
    let request =
        GetApprovalRequest { approval_id: approval.to_owned(), ..GetApprovalRequest::default() };
    client.operator().get_approval(request).await.expect("show an approval").into_inner()
}

/// The request as it stands.
pub(crate) async fn standing(client: &Client, approval: &str) -> Approval {
    shown(client, approval).await.approval.expect("an approval")
}

/// Waits until the sweep of a schedule has begun and ended: two more of its slots were claimed.
pub(crate) async fn swept(world: &World, schedule: &str) {
    swept_in(world.pool(), schedule).await;
}

/// The same, where nothing of the world can be borrowed.
pub(crate) async fn swept_in(pool: &sqlx::PgPool, schedule: &str) {
    let fence = || async {
        sqlx::query_scalar::<_, i64>("SELECT fence FROM undolog_schedules WHERE name = $1")
            .bind(schedule)
            .fetch_one(pool)
            .await
            .expect("read a schedule")
    };
    let before = fence().await;
    within(Duration::from_secs(120), &format!("{schedule} are swept"), || async {
        let now = fence().await;
        if now > before + 1 { Ok(()) } else { Err(now) }
    })
    .await;
}

/// The states of the session's effects, by step.
pub(crate) async fn effect_state(world: &World, effect: &str) -> String {
    sqlx::query_scalar("SELECT state::text FROM undolog_effect_log WHERE effect_id = $1::uuid")
        .bind(effect)
        .fetch_one(world.pool())
        .await
        .expect("read an effect")
}

/// A number that a statement answers.
pub(crate) async fn count(world: &World, sql: &str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(world.pool()).await.expect("count")
}

/// Arguments of a wire transfer.
pub(crate) fn wire(n: u32) -> Value {
    json!({"to": "acme", "cents": n})
}
