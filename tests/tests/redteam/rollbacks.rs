//! Which sessions an agent may roll back.

use serde_json::json;
use undolog_proto::v1;
use undolog_tests::world::Client;
use uuid::Uuid;

use crate::bench::{Bench, call, commit, grant, reason};

async fn policy(bench: &Bench, value: &str) {
    sqlx::query("UPDATE undolog_orgs SET agents_roll_back = $1 WHERE org_id = $2")
        .bind(value)
        .bind(bench.org.id)
        .execute(bench.db.pool())
        .await
        .expect("the policy");
}

async fn session(agent: &Client, ends: bool) -> Uuid {
    let session = Uuid::new_v4();
    let effect = grant(agent, call(session, 1, "pay", &json!({}))).await;
    commit(agent, session, &effect, &json!({"id": 1})).await.expect("committed");
    if ends {
        let request = v1::CompleteRequest { session_id: session.to_string(), ..Default::default() };
        agent.sessions().complete(request).await.expect("completed");
    }
    session
}

async fn roll_back(client: &Client, session: Uuid) -> Result<(), tonic::Status> {
    let request = v1::RollbackRequest { session_id: session.to_string(), ..Default::default() };
    client.sessions().rollback(request).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_organisation_says_which_sessions_an_agent_may_roll_back() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let operator = bench.client("operator", "ops").await;
    bench.tools(&admin).await;
    roll_back(&agent, session(&agent, true).await).await.expect("any: the default");
    policy(&bench, "live").await;
    let ended = session(&agent, true).await;
    assert_eq!(reason(roll_back(&agent, ended).await), "PERMISSION_DENIED");
    roll_back(&operator, ended).await.expect("an operator");
    roll_back(&agent, session(&agent, false).await).await.expect("it is live");
    policy(&bench, "never").await;
    let live = session(&agent, false).await;
    assert_eq!(reason(roll_back(&agent, live).await), "PERMISSION_DENIED");
    let request = v1::FailSessionRequest { session_id: live.to_string(), ..Default::default() };
    agent.sessions().fail_session(request).await.expect("a failure is rolled back all the same");
    roll_back(&operator, session(&agent, false).await).await.expect("an operator");
}
