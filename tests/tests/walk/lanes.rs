//! What hangs in one kind of maintenance work holds up no other, and no other organisation's.

use serde_json::json;
use undolog_core::{Tier, state::FailedEffect};
use undolog_store::sessions::RollbackScope;
use undolog_tests::{
    SOON, eventually,
    witness::{Act, Script, Witness},
    world::Org,
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    process::Running,
    walker::{pay, run},
};

/// An organisation with an unknown call that this route is asked about.
async fn asked_at(bench: &mut Bench, witness: &Witness, slug: &str, route: &str) -> Uuid {
    bench.org = Org::create(bench.db.pool(), slug).await;
    bench.session = Uuid::new_v4();
    bench.continue_on_failure().await;
    let body = json!({
        "endpoint": witness.url("/undo/pay"), "arg_mapping": {"id": "{result.id}"},
        "done_statuses": [404],
    });
    bench.compensation("undo_pay", body).await;
    let probe = json!({
        "method": "GET", "endpoint": witness.url(route), "timeout_ms": 30_000,
        "happened": {"status": [200], "result": "/charge"}, "did_not_happen": {"status": [404]},
    });
    bench
        .tool("pay", Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.probe = probe.to_string().into_bytes();
        })
        .await;
    let effect = bench.grant(1, "pay").await;
    bench.fail(effect, FailedEffect::Unknown).await.expect("it is unknown");
    effect
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_that_hang_hold_up_no_other_organisation_and_no_other_sweep() {
    let mut bench = Bench::new().await;
    let witness = Witness::start().await;
    let gate = witness.hold("/probe/hangs");
    let happened = Act::Answer(200, Vec::new(), r#"{"charge": {"id": "p-1"}}"#.to_owned());
    witness.script(Script::always("/probe/answers", happened));
    let mut hanging = Vec::new();
    for n in 0..6 {
        let slug = format!("hangs-{n}");
        hanging.push(asked_at(&mut bench, &witness, &slug, "/probe/hangs").await);
    }
    let back = "UPDATE undolog_effect_log SET lost_at = lost_at - interval '70 seconds' \
        WHERE state = 'unknown'";
    run(bench.db.pool(), back).await;
    let worker = Running::start(&bench, |_| {}).await;
    witness.wait_for("/probe/hangs", 6, SOON).await;

    let other = asked_at(&mut bench, &witness, "other", "/probe/answers").await;
    run(bench.db.pool(), back).await;
    eventually("the other organisation's call is settled", || async {
        let state = bench.effect_state(other).await;
        if state == "committed" { Ok(()) } else { Err(state) }
    })
    .await;
    // A lost ticket is found by the reaper, whose handler no probe has.
    bench.session = Uuid::new_v4();
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    run(bench.db.pool(), "DELETE FROM apalis.jobs WHERE status = 'Pending'").await;
    eventually("the rollback ends", || async {
        let state = bench.session_state().await;
        if state == "compensated" { Ok(()) } else { Err(state) }
    })
    .await;
    let answers: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM undolog_effect_log WHERE effect_id = ANY ($1) \
         AND probe_answer IS NULL",
    )
    .bind(&hanging)
    .fetch_one(bench.db.pool())
    .await
    .expect("answers");
    assert_eq!(answers, 6, "they have waited for none of these");
    gate.open();
    worker.stop().await;
}
