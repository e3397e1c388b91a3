//! Begin, heartbeat, complete, and the leases between them.

use serde_json::json;
use undolog_core::{Reason, state::EffectState};
use undolog_store::sessions::{Begin, Heartbeat, HeartbeatReply};
use uuid::Uuid;

use crate::bench::{Bench, awaiting, refused};

impl Bench {
    async fn heartbeat(&self, grants: Vec<(Uuid, u32)>) -> HeartbeatReply {
        let step = Heartbeat { caller: self.agent(), session_id: self.session, grants };
        self.store.run(step).await.expect("heartbeat")
    }
}

#[tokio::test]
async fn beginning_twice_finds_the_same_session() {
    let bench = Bench::new().await;
    let first = bench.begin().await;
    assert!(!first.existed && first.lease_expires_at.is_some());
    assert!(bench.begin().await.existed);
    let other = Begin {
        caller: bench.caller(undolog_core::role::Role::Agent, "agent-2"),
        ..bench.begin_step()
    };
    refused(bench.store.run(other).await, Reason::SessionNotFound);
    for bad in [
        Begin { lease_seconds: 299, ..bench.begin_step() },
        Begin { on_unknown: "maybe".into(), ..bench.begin_step() },
        Begin { metadata: b"[]".to_vec(), ..bench.begin_step() },
        Begin { agent_name: "a\0b".into(), ..bench.begin_step() },
    ] {
        refused(bench.store.run(bad).await, Reason::InvalidArgument);
    }
    bench.check().await;
}

#[tokio::test]
async fn a_session_with_open_effects_is_not_complete() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    refused(bench.complete().await, Reason::EffectsOpen);
    bench.expire(effect).await;
    bench.ask(1, "pay").await.expect_err("now unknown");
    refused(bench.complete().await, Reason::EffectsOpen);
    let accepted = undolog_store::sessions::Complete {
        caller: bench.agent(),
        session_id: bench.session,
        accept_unknown: true,
    };
    bench.store.run(accepted).await.expect("the caller accepts it");
    bench.complete().await.expect("the same again");
    bench.check().await;
}

#[tokio::test]
async fn a_session_that_waits_for_approval_is_not_complete() {
    let bench = Bench::new().await;
    awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    refused(bench.complete().await, Reason::EffectsOpen);
}

#[tokio::test]
async fn heartbeats_stretch_a_grant_to_the_tools_longest_execution_and_no_further() {
    let bench = Bench::new().await;
    bench.run_sql("UPDATE undolog_tool_registry SET max_execution_ms = 3600000").await;
    bench.run_sql("UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1").await;
    let effect = bench.grant(1, "pay").await;
    let ends = "UPDATE undolog_effect_log SET execution_ends_at = clock_timestamp() + interval ";
    bench.run_sql(&format!("{ends}'5 seconds'")).await;
    let beat = bench.heartbeat(vec![(effect, 1)]).await;
    assert!(!beat.grants[0].stop);
    let left = "SELECT (lease_ms <= 5000)::text FROM undolog_effect_log WHERE session_id = $1";
    assert_eq!(bench.text(left).await, "true", "the lease ends with the execution");
    bench.run_sql(&format!("{ends}'-1 seconds'")).await;
    assert!(bench.heartbeat(vec![(effect, 1)]).await.grants[0].stop, "its time is over");
    bench.check().await;
}

#[tokio::test]
async fn heartbeats_keep_grants_and_bring_an_unknown_one_back() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    let before = bench.heartbeat(vec![(effect, 1)]).await;
    assert!(!before.stop && !before.grants[0].stop);
    bench.expire(effect).await;
    bench.ask(1, "pay").await.expect_err("now unknown");
    let back = bench.heartbeat(vec![(effect, 1)]).await;
    assert_eq!(back.grants[0].state, EffectState::Executing);
    assert!(!back.grants[0].stop);
    let stale = bench.heartbeat(vec![(effect, 7)]).await;
    assert!(stale.grants[0].stop, "an attempt that nobody has");
    bench.commit(effect, &json!(1)).await.expect("commit");
    assert!(bench.heartbeat(vec![(effect, 1)]).await.grants[0].stop, "the grant is over");
    bench.rollback(undolog_store::sessions::RollbackScope::Whole).await.expect("rollback");
    assert!(bench.heartbeat(vec![]).await.stop, "the session takes no more work");
    bench.check().await;
}

#[tokio::test]
async fn an_agent_that_waited_has_its_resume_window() {
    let bench = Bench::new().await;
    bench.begin().await;
    let (_, approval) = awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench.approve(approval, None).await.expect("approve");
    let held = bench
        .text(
            "SELECT (lease_hold_until > now() + interval '23 hours')::text FROM undolog_sessions \
             WHERE session_id = $1",
        )
        .await;
    assert_eq!(held, "true");
    bench.grant(1, "wipe").await;
    let held = bench
        .text("SELECT (lease_hold_until IS NULL)::text FROM undolog_sessions WHERE session_id = $1")
        .await;
    assert_eq!(held, "true", "it is heard from: its lease counts again");
    bench.check().await;
}
