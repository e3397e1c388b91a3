//! What an operator changed holds at once, also for a step that was waiting for its session's lock
//! when the change was committed.

use std::time::Duration;

use serde_json::json;
use sqlx::{PgPool, Postgres, Transaction};
use undolog_core::{Reason, retry::CallOutcome, role::Role, state::FailedEffect};
use undolog_store::{
    intercept::{Intercept, InterceptReply},
    registry::{CompensationRow, SetActive, ToolRow},
};
use undolog_tests::wait::within;

use crate::{
    bench::{Bench, awaiting, refused},
    walker::{Walker, entries, pay, report_of},
};

/// Holds the session's row, as a slow step or a forgotten psql does.
async fn hold(bench: &Bench) -> Transaction<'static, Postgres> {
    let mut held = bench.db.pool().begin().await.expect("begin");
    sqlx::query("SELECT FROM undolog_sessions WHERE session_id = $1 FOR UPDATE")
        .bind(bench.session)
        .execute(&mut *held)
        .await
        .expect("hold the session");
    held
}

/// Waits until a step of this database stands before a lock.
async fn waiting(pool: &PgPool) {
    within(Duration::from_secs(20), "a step waits for the lock", || async {
        let found: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() \
             AND wait_event_type = 'Lock' AND application_name IN ('steps', 'walk'))",
        )
        .fetch_one(pool)
        .await
        .expect("look");
        if found { Ok(()) } else { Err("nobody waits") }
    })
    .await;
}

/// Runs a step into a session's lock, makes a change meanwhile, and answers what the step said.
async fn while_it_waits<T>(
    bench: &Bench,
    step: impl Future<Output = T>,
    change: impl Future<Output = ()>,
) -> T {
    let held = hold(bench).await;
    let meanwhile = async {
        waiting(bench.db.pool()).await;
        change.await;
        held.commit().await.expect("let go");
    };
    let (said, ()) = tokio::join!(step, meanwhile);
    said
}

async fn set_tool(bench: &Bench, name: &str, is_active: bool) {
    let admin = bench.caller(Role::Admin, "root");
    let step = SetActive::<ToolRow>::tool(admin, name.into(), String::new(), is_active);
    let changed = bench.store.run(step).await.expect("change the tool");
    assert_eq!(changed.len(), 1, "{name}");
}

#[tokio::test]
async fn a_tool_taken_out_of_use_is_not_granted_to_a_call_that_was_waiting() {
    let bench = Bench::new().await;
    bench.grant(1, "pay").await;
    let said = while_it_waits(&bench, bench.ask(2, "pay"), set_tool(&bench, "pay", false)).await;
    refused(said, Reason::ToolNotRegistered);
    // And the other way round: what was allowed meanwhile is allowed.
    let said = while_it_waits(&bench, bench.ask(2, "pay"), set_tool(&bench, "pay", true)).await;
    assert!(matches!(said, Ok(InterceptReply::Execute { .. })), "{said:?}");
    bench.check().await;
}

#[tokio::test]
async fn a_compensation_taken_out_of_use_is_not_bound_to_a_call_that_was_waiting() {
    let bench = Bench::new().await;
    bench.grant(1, "pay").await;
    let said = while_it_waits(&bench, bench.ask(2, "pay"), async {
        let admin = bench.caller(Role::Admin, "root");
        let step = SetActive::<CompensationRow>::compensation(
            admin,
            "undo_pay".into(),
            String::new(),
            false,
        );
        bench.store.run(step).await.expect("take it out of use");
    })
    .await;
    refused(said, Reason::CompensationUnusable);
    bench.check().await;
}

#[tokio::test]
async fn a_tool_taken_out_of_use_while_another_call_begins_the_session_is_not_granted() {
    let bench = Bench::new().await;
    // The parsed tool is kept by the process.
    let mut input = bench.input(1, "pay", &json!({}));
    input.session_id = uuid::Uuid::new_v4();
    bench.send(input).await.expect("a session of its own");
    let mut begun = bench.db.pool().begin().await.expect("begin");
    sqlx::query("INSERT INTO undolog_sessions (session_id, org_id, principal) VALUES ($1, $2, $3)")
        .bind(bench.session)
        .bind(bench.org.id)
        .bind(crate::bench::AGENT)
        .execute(&mut *begun)
        .await
        .expect("begin the session");
    let call = Intercept::new(bench.input(1, "pay", &json!({}))).expect("a call");
    let meanwhile = async {
        waiting(bench.db.pool()).await;
        set_tool(&bench, "pay", false).await;
        begun.commit().await.expect("begun");
    };
    let (said, ()) = tokio::join!(bench.store.run(call), meanwhile);
    refused(said, Reason::ToolNotRegistered);
}

#[tokio::test]
async fn what_a_failure_or_a_rejection_does_is_what_the_organisation_says_now() {
    let bench = Bench::new().await;
    let pool = bench.db.pool();
    let effect = bench.grant(1, "pay").await;
    let said = while_it_waits(
        &bench,
        bench.fail(effect, FailedEffect::MaybeApplied),
        bench.org.set(pool, "on_tool_failure", "continue"),
    )
    .await;
    said.expect("the failure is recorded");
    assert_eq!(bench.session_state().await, "active", "on_tool_failure");

    let (_, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    let said = while_it_waits(
        &bench,
        bench.reject(approval),
        bench.org.set(pool, "on_rejection", "rollback"),
    )
    .await;
    said.expect("rejected");
    assert_eq!(bench.session_state().await, "compensating", "on_rejection");
    bench.check().await;
}

#[tokio::test]
async fn whether_a_dead_letter_stops_the_walk_is_what_the_organisation_says_now() {
    let bench = Bench::new().await;
    pay(&bench, 2).await;
    let walker = Walker::start(&bench).await;
    let call = Walker::call(walker.step(None).await);
    let report = report_of(&call, CallOutcome::Permanent);
    let next = while_it_waits(
        &bench,
        walker.step(Some(report)),
        bench.org.set(bench.db.pool(), "on_dead_letter", "continue"),
    )
    .await;
    let call = Walker::call(next);
    walker.step(Some(report_of(&call, CallOutcome::Done))).await;
    assert_eq!(entries(&bench).await, ["compensated", "failed"]);
    bench.check().await;
}

#[tokio::test]
async fn a_webhook_hears_of_what_happened_after_it_was_set() {
    let bench = Bench::new().await;
    bench.grant(1, "pay").await;
    let said = while_it_waits(&bench, bench.ask(2, "wipe"), async {
        let sql = "UPDATE undolog_orgs SET webhook_url = 'https://hooks.example/x', \
            webhook_secret = 'HOOK'";
        bench.run_sql(sql).await;
    })
    .await;
    awaiting(&said.expect("asked"));
    assert_eq!(bench.count("undolog_notifications").await, 1);
    bench.check().await;
}
