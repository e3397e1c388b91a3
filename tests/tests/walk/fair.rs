//! One organisation's backlog does not hold up another's only rollback.

use std::{sync::Arc, time::Instant};

use serde_json::json;
use tokio_util::sync::CancellationToken;
use undolog_core::state::FailedEffect;
use undolog_store::{StoreOptions, intercept::Intercept, report::Fail};
use undolog_tests::{
    SOON,
    witness::{Act, Script, Witness},
    world::Org,
};
use undolog_workers::{
    WorkerOptions, Workers,
    egress::{AllowList, EgressOptions},
};
use uuid::Uuid;

use crate::bench::{Bench, executed};

const BACKLOG: u32 = 2_000;
const CONCURRENCY: usize = 16;

/// A session whose one call fails, so that its rollback is due.
async fn fails(bench: &Bench) {
    let session_id = Uuid::new_v4();
    let mut input = bench.input(1, "pay", &json!({"n": 1}));
    input.session_id = session_id;
    let intercept = Intercept::new(input).expect("a call");
    let effect_id = executed(&bench.store.run(intercept).await.expect("a grant"));
    let fail = Fail {
        executor_token: String::new(),
        caller: bench.agent(),
        session_id,
        effect_id,
        attempt: 0,
        error: "it broke".into(),
        effect: FailedEffect::MaybeApplied,
        on_tool_failure: String::new(),
    };
    bench.store.run(fail).await.expect("fail");
}

async fn backlog(bench: Bench) -> Bench {
    let bench = Arc::new(bench);
    let makers = (0..8).map(|_| {
        let bench = Arc::clone(&bench);
        tokio::spawn(async move {
            for _ in 0..BACKLOG / 8 {
                fails(&bench).await;
            }
        })
    });
    for maker in makers.collect::<Vec<_>>() {
        maker.await.expect("no panic");
    }
    Arc::into_inner(bench).expect("all are done")
}

async fn undone_at(bench: &Bench, witness: &Witness, route: &str) {
    let more = json!({
        "endpoint": witness.url(route), "arg_mapping": {"id": "x"}, "done_statuses": [404],
    });
    bench.compensation("undo_pay", more).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_rollback_does_not_wait_for_two_thousand_of_another_organisation() {
    let witness = Witness::start().await;
    // A call takes so long that the backlog lasts.
    let slow = Act::Delay(std::time::Duration::from_millis(25));
    witness.script(Script::always("/undo/a", slow));
    let mut bench = Bench::new().await;
    undone_at(&bench, &witness, "/undo/a").await;
    bench = backlog(bench).await;
    let due = "SELECT count(*) FROM undolog_due WHERE kind = 'rollback'";
    let due: i64 = sqlx::query_scalar(due).fetch_one(bench.db.pool()).await.expect("due");
    assert_eq!(due, i64::from(BACKLOG));

    bench.org = Org::create(bench.db.pool(), "other").await;
    undone_at(&bench, &witness, "/undo/b").await;
    bench
        .tool("pay", undolog_core::Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
        })
        .await;
    let url = bench.db.url().to_owned().into();
    let mut options = WorkerOptions::new(StoreOptions::new(url, Some("undolog_worker"), "worker"));
    options.egress = EgressOptions { allow: AllowList::loopback(), ..EgressOptions::default() };
    options.concurrency = CONCURRENCY;
    let stop = CancellationToken::new();
    let workers = Workers::connect(options).await.expect("connect");
    let serving = tokio::spawn(workers.serve(stop.clone()));
    witness.wait_for("/undo/a", 4 * CONCURRENCY, SOON).await;

    fails(&bench).await;
    let (asked, before) = (Instant::now(), witness.calls_to("/undo/a").len());
    let call = witness.wait_for("/undo/b", 1, SOON).await.remove(0);
    let waited = call.at.saturating_duration_since(asked);
    let between = witness.calls_to("/undo/a").iter().filter(|a| a.number < call.number).count();
    let between = between.saturating_sub(before);
    stop.cancel();
    serving.await.expect("no panic").expect("serve");
    let line = format!("B waited {waited:?} and {between} calls of A, which had {before} before");
    assert!(before + between < BACKLOG as usize / 2, "the backlog was too short: {line}");
    assert!(between <= 4 * CONCURRENCY, "{line}");
    // Figures for whoever looks.
    eprintln!("{line}");
}
