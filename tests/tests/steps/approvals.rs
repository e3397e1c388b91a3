//! Decisions about irreversible calls: one wins, and it is bound to what was shown.

use serde_json::json;
use undolog_core::Reason;
use undolog_store::intercept::InterceptReply;

use crate::bench::{Bench, awaiting, executed, refused};

#[tokio::test]
async fn of_many_decisions_one_wins() {
    let bench = std::sync::Arc::new(Bench::new().await);
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let mut tasks = Vec::new();
    for n in 0..40 {
        let bench = bench.clone();
        tasks.push(tokio::spawn(async move {
            match n % 2 {
                0 => bench.approve(approval, None).await.map(|_| "approved"),
                _ => bench.reject(approval).await.map(|_| "rejected"),
            }
        }));
    }
    let mut winners = Vec::new();
    for task in tasks {
        match task.await.expect("no panic") {
            Ok(decision) => winners.push(decision),
            other => refused(other, Reason::ApprovalAlreadyResolved),
        }
    }
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(bench.effect_state(effect).await, winners[0]);
    assert_eq!(bench.count("undolog_approval_events").await, 1);
    bench.check().await;
}

#[tokio::test]
async fn edited_arguments_reach_only_a_caller_that_accepts_them() {
    let bench = Bench::new().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let edited = json!({"step": 1, "only": "b"});
    let approved = bench.approve(approval, Some(&edited)).await.expect("approve");
    assert_eq!(approved.args, br#"{"only":"b","step":1}"#);
    refused(bench.ask(1, "wipe").await, Reason::ArgsModified);
    let mut input = bench.input(1, "wipe", &json!({"step": 1}));
    input.accepts_approved_args = true;
    let reply = bench.send(input).await.expect("a grant");
    match &reply {
        InterceptReply::Execute { approved_args: Some(args), approval_id, .. } => {
            assert_eq!(args, br#"{"only":"b","step":1}"#);
            assert_eq!(*approval_id, Some(approval));
        }
        other => panic!("no edited arguments: {other:?}"),
    }
    let audit = bench
        .text(
            "SELECT e.action::text || e.args_diff::text || e.actor || e.claimed_actor \
             FROM undolog_approval_events e JOIN undolog_approval_requests r \
             USING (approval_request_id) WHERE r.session_id = $1",
        )
        .await;
    assert_eq!(audit, r#"modify[{"op": "add", "path": "/only", "value": "b"}]bossAda"#);
    bench.check().await;
}

#[tokio::test]
async fn a_late_approval_loses_by_the_databases_clock_and_a_reject_still_wins() {
    let bench = Bench::new().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench.expire(uuid::Uuid::nil()).await;
    sqlx::query("UPDATE undolog_approval_requests SET timeout_at = now() - interval '1 second'")
        .execute(bench.db.pool())
        .await
        .expect("the window is over");
    refused(bench.approve(approval, None).await, Reason::ApprovalTimedOut);
    bench.reject(approval).await.expect("a reject wins while it is pending");
    bench.check().await;
}

#[tokio::test]
async fn an_approver_sees_the_session_but_no_other_organisations_request() {
    let bench = Bench::new().await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let mut input = bench.input(2, "wipe", &json!({"all": true}));
    input.agent_context = br#"{"why":"cleaning\u0000up"}"#.to_vec();
    let (_, approval) = awaiting(&bench.send(input).await.expect("asked"));
    let calls = bench
        .text(
            "SELECT agent_context -> 'calls' -> 0 ->> 'tool_name' FROM undolog_approval_requests \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(calls, "pay");
    let stranger = undolog_tests::world::Org::create(bench.db.pool(), "evil").await;
    let mut caller = bench.caller(undolog_core::role::Role::Approver, "mallory");
    caller.org_id = stranger.id;
    let step = undolog_store::approvals::Approve {
        caller,
        approval_id: approval,
        actor: String::new(),
        approved_args: None,
        note: String::new(),
        actor_ip: None,
    };
    refused(bench.store.run(step).await, Reason::ApprovalNotFound);
    bench.approve(approval, None).await.expect("its own approver");
    executed(&{
        let input = bench.input(2, "wipe", &json!({"all": true}));
        bench.send(input).await.expect("a grant")
    });
    bench.check().await;
}

/// Lets the window of a request be over, while our service runs and has run for long.
async fn window_over(bench: &Bench) {
    bench.expire(uuid::Uuid::nil()).await;
    sqlx::query("UPDATE undolog_approval_requests SET timeout_at = now() - interval '1 hour'")
        .execute(bench.db.pool())
        .await
        .expect("the window is over");
}

async fn sweep(bench: &Bench) -> u64 {
    let url = bench.db.url().to_owned().into();
    let options = undolog_store::StoreOptions::new(url, Some("undolog_worker"), "sweeper");
    let store = undolog_store::Store::connect(&options).await.expect("connect as a worker");
    undolog_store::sweeps::approvals(&store).await.expect("sweep").settled
}

#[tokio::test]
async fn a_request_that_nobody_decided_times_out_once() {
    let bench = Bench::new().await;
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    assert_eq!(sweep(&bench).await, 0, "its window is open");
    window_over(&bench).await;
    let sweeps = tokio::join!(sweep(&bench), sweep(&bench), sweep(&bench));
    assert_eq!(sweeps.0 + sweeps.1 + sweeps.2, 1, "{sweeps:?}");
    assert_eq!(bench.effect_state(effect).await, "rejected");
    assert_eq!(bench.session_state().await, "halted");
    refused(bench.ask(1, "wipe").await, Reason::ApprovalTimedOut);
    refused(bench.approve(approval, None).await, Reason::ApprovalAlreadyResolved);
    let audit = bench
        .text(
            "SELECT string_agg(action || ' ' || actor, ',') FROM undolog_approval_events e \
             JOIN undolog_approval_requests r USING (approval_request_id) WHERE session_id = $1",
        )
        .await;
    assert_eq!(audit, "timeout system:timeout");
    bench.check().await;
}

#[tokio::test]
async fn auto_approval_waits_after_an_outage_and_never_covers_listed_tags() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "auto_approve_on_timeout", "true").await;
    let (effect, _) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    window_over(&bench).await;
    sqlx::query(
        "UPDATE undolog_service SET resumed_at = now() - interval '14 minutes', \
         away_from = now() - interval '2 hours'",
    )
    .execute(bench.db.pool())
    .await
    .expect("back for 14 minutes");
    assert_eq!(sweep(&bench).await, 0, "people get their 15 minutes");
    sqlx::query("UPDATE undolog_service SET resumed_at = now() - interval '16 minutes'")
        .execute(bench.db.pool())
        .await
        .expect("back for 16 minutes");
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(effect).await, "approved");
    assert_eq!(bench.grant(1, "wipe").await, effect, "and it runs once");
    bench.commit(effect, &json!(1)).await.expect("commit");

    bench
        .tool("pay_out", undolog_core::Tier::Irreversible, |tool| {
            tool.irreversibility_reason = "money is gone".into();
            tool.risk_tags = vec!["financial".into()];
        })
        .await;
    let (paid, _) = awaiting(&bench.ask(2, "pay_out").await.expect("asked"));
    sqlx::query("UPDATE undolog_orgs SET never_auto_approve_tags = '{financial}'")
        .execute(bench.db.pool())
        .await
        .expect("listed meanwhile");
    window_over(&bench).await;
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(paid).await, "rejected", "the tag wins over the policy");
    bench.check().await;
}

#[tokio::test]
async fn nothing_is_approved_by_a_time_out_in_a_session_that_has_ended() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "auto_approve_on_timeout", "true").await;
    let (_, rejected) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let (other, _) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.reject(rejected).await.expect("reject");
    assert_eq!(bench.session_state().await, "halted");
    window_over(&bench).await;
    sqlx::query("UPDATE undolog_service SET resumed_at = now() - interval '16 minutes'")
        .execute(bench.db.pool())
        .await
        .expect("no outage");
    assert_eq!(sweep(&bench).await, 1);
    assert_eq!(bench.effect_state(other).await, "rejected");
    bench.check().await;
}

#[tokio::test]
async fn a_projects_policy_stands_between_the_tools_and_the_organisations() {
    let bench = Bench::new().await;
    bench
        .run_sql(
            "INSERT INTO undolog_projects (project_id, org_id, name, approval_timeout_seconds, \
               auto_approve_on_timeout, approval_quorum) \
             SELECT '00000000-0000-7000-8000-000000000001', org_id, 'shop', 77, true, 2 \
             FROM undolog_orgs",
        )
        .await;
    let mut begin = bench.begin_step();
    begin.project = "shop".into();
    bench.store.run(begin).await.expect("begin");
    let policy = async |step| {
        awaiting(&bench.ask(step, "wipe").await.expect("asked"));
        bench
            .text(
                "SELECT round(extract(epoch FROM r.timeout_at - r.created_at)) || ' ' \
                   || r.auto_approve_on_timeout || ' ' || r.quorum \
                 FROM undolog_approval_requests r WHERE r.session_id = $1 \
                 ORDER BY r.created_at DESC LIMIT 1",
            )
            .await
    };
    assert_eq!(policy(1).await, "77 true 2", "the project's");
    bench.run_sql("UPDATE undolog_projects SET approval_quorum = NULL").await;
    bench
        .run_sql(
            "UPDATE undolog_tool_registry SET approval_timeout_seconds = 55, \
             auto_approve_on_timeout = false WHERE tool_name = 'wipe'",
        )
        .await;
    bench.run_sql("UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1").await;
    assert_eq!(policy(2).await, "55 false 1", "the tool's, and the organisation's quorum");
    let first = "SELECT string_agg(quorum::text, ' ' ORDER BY created_at) \
                 FROM undolog_approval_requests WHERE session_id = $1";
    assert_eq!(bench.text(first).await, "2 1", "as it was when it was asked");
}

#[tokio::test]
async fn a_rejection_rolls_back_where_the_policy_says_so() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "on_rejection", "rollback").await;
    bench.commit(bench.grant(1, "pay").await, &json!(1)).await.expect("commit");
    let (_, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.reject(approval).await.expect("reject");
    assert_eq!(bench.session_state().await, "compensating");
    bench.check().await;
}

/// A call that is rejected or runs out of time takes only itself away; the agent goes on.
#[tokio::test]
async fn a_session_goes_on_after_a_rejection_where_the_policy_says_so() {
    let bench = Bench::new().await;
    bench.org.set(bench.db.pool(), "on_rejection", "continue").await;
    let (first, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let (_, second) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.reject(approval).await.expect("reject");
    assert_eq!(bench.session_state().await, "awaiting_approval", "another one is pending");
    bench.reject(second).await.expect("reject");
    assert_eq!(bench.session_state().await, "active");
    assert_eq!(bench.effect_state(first).await, "rejected");
    refused(bench.ask(1, "wipe").await, Reason::ApprovalRejected);
    bench.commit(bench.grant(3, "pay").await, &json!(1)).await.expect("it goes on");
    bench.check().await;
}

#[tokio::test]
async fn an_unused_approval_is_revoked_or_lapses_and_then_never_runs() {
    let bench = Bench::new().await;
    let (first, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let revoke = |approval_id| undolog_store::approvals::Revoke {
        caller: bench.caller(undolog_core::role::Role::Approver, "boss"),
        approval_id,
        note: "changed my mind".into(),
    };
    refused(bench.store.run(revoke(approval)).await, Reason::ApprovalAlreadyResolved);
    bench.approve(approval, None).await.expect("approve");
    bench.store.run(revoke(approval)).await.expect("revoke");
    refused(bench.ask(1, "wipe").await, Reason::ApprovalRevoked);
    assert_eq!(bench.effect_state(first).await, "rejected");

    let (second, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    bench.expire(uuid::Uuid::nil()).await;
    sqlx::query("UPDATE undolog_approval_requests SET resolved_at = now() - interval '25 hours'")
        .execute(bench.db.pool())
        .await
        .expect("a day ago");
    refused(bench.ask(2, "wipe").await, Reason::ApprovalLapsed);
    assert_eq!(bench.effect_state(second).await, "rejected");
    assert_eq!(bench.session_state().await, "active", "a lapse only rejects the effect");
    bench.check().await;
}

#[tokio::test]
async fn a_quorum_counts_distinct_people_on_the_same_arguments() {
    let bench = Bench::new().await;
    sqlx::query(
        "UPDATE undolog_tool_registry SET approval_quorum = 2, requester_may_approve = false \
         WHERE tool_name = 'wipe'",
    )
    .execute(bench.db.pool())
    .await
    .expect("a quorum of two");
    let (effect, approval_id) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let vote = |who: &str, args: Option<serde_json::Value>| {
        bench.store.run(undolog_store::approvals::Approve {
            caller: bench.caller(undolog_core::role::Role::Approver, who),
            approval_id,
            actor: String::new(),
            approved_args: args.map(|args| args.to_string().into_bytes()),
            note: String::new(),
            actor_ip: None,
        })
    };
    refused(vote(crate::bench::AGENT, None).await, Reason::PermissionDenied);
    vote("ada", None).await.expect("one");
    vote("ada", None).await.expect("the same person again");
    assert_eq!(bench.effect_state(effect).await, "pending");
    let edit = || Some(json!({"less": true, "step": 1}));
    vote("ben", edit()).await.expect("an edit begins again");
    assert_eq!(bench.effect_state(effect).await, "pending");
    // What ada has looked at may be the call as it was asked for.
    refused(vote("ada", None).await, Reason::ArgsModified);
    assert_eq!(bench.effect_state(effect).await, "pending");
    vote("ada", edit()).await.expect("the edit is what is voted on");
    assert_eq!(bench.effect_state(effect).await, "approved");
    refused(bench.ask(1, "wipe").await, Reason::ArgsModified);
    bench.check().await;
}

#[tokio::test]
async fn an_approval_that_is_bound_to_other_arguments_runs_nothing() {
    let bench = Bench::new().await;
    let (effect, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    // Somebody got at the row: what was approved is not what would run.
    let forge = |column: &str, value: &str| {
        let sql = format!(
            "UPDATE undolog_approval_requests SET {column} = {value} \
             WHERE approval_request_id = '{approval}'"
        );
        let pool = bench.db.pool().clone();
        async move { sqlx::raw_sql(&sql).execute(&pool).await.expect("forge") }
    };
    forge("args_digest", "sha256('other arguments')").await;
    let answer = bench.ask(1, "wipe").await;
    assert!(matches!(answer, Err(undolog_store::StepError::Corrupt(_))), "{answer:?}");
    forge("args_digest", "NULL").await;
    let answer = bench.ask(1, "wipe").await;
    assert!(matches!(answer, Err(undolog_store::StepError::Corrupt(_))), "{answer:?}");
    assert_eq!(bench.effect_state(effect).await, "approved");
    let granted = "SELECT count(granted_at)::text FROM undolog_effect_log WHERE session_id = $1";
    assert_eq!(bench.text(granted).await, "0", "a grant was given");
}
