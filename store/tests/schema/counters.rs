//! The documented triggers: their arithmetic, and standing aside for a batch.

use sqlx::PgConnection;

use crate::kit::{ORG_A, Server, fill_two_orgs, refusal, run};

const SESSION: &str = "00000000-0000-7000-8000-00000000002a";
const EFFECT: &str = "00000000-0000-7000-8000-00000000003a";

async fn totals(conn: &mut PgConnection) -> (i32, i32, i32) {
    let sql = format!(
        "SELECT tool_calls_total, compensations_total, approvals_pending
         FROM undolog_sessions WHERE session_id = '{SESSION}'"
    );
    sqlx::query_as(&sql).fetch_one(conn).await.unwrap()
}

fn insert_effect(signature: &str, state: &str) -> String {
    format!(
        "INSERT INTO undolog_effect_log (org_id, session_id, call_signature, tool_name, tier,
             step_index, args_snapshot, state)
         VALUES ('{ORG_A}', '{SESSION}', repeat('{signature}', 64), 'pay', 'compensable', 1, '{{}}',
             '{state}')"
    )
}

fn insert_approval(state: &str) -> String {
    format!(
        "INSERT INTO undolog_approval_requests (org_id, session_id, effect_id, tool_name,
             irreversibility_reason, proposed_args, timeout_at, state)
         VALUES ('{ORG_A}', '{SESSION}', '{EFFECT}', 'wipe', 'gone', '{{}}', now(), '{state}')"
    )
}

/// The triggers of later migrations watch the moves between states; here only sums are at stake.
async fn only_the_counters(conn: &mut PgConnection) {
    run(
        conn,
        "DO $$ DECLARE t record; BEGIN
             FOR t IN SELECT tgrelid::regclass AS rel, tgname FROM pg_trigger
                      WHERE NOT tgisinternal AND tgname NOT LIKE '%\\_counter' AND tgparentid = 0
             LOOP EXECUTE format('ALTER TABLE %s DISABLE TRIGGER %I', t.rel, t.tgname); END LOOP;
             FOR t IN SELECT conrelid::regclass AS rel, conname FROM pg_constraint
                      WHERE contype = 'c' AND coninhcount = 0
                        AND conrelid IN ('undolog_effect_log'::regclass,
                                         'undolog_approval_requests'::regclass)
             LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', t.rel, t.conname); END LOOP;
         END $$",
    )
    .await;
}

#[tokio::test]
async fn counters_follow_the_documented_arithmetic() {
    let (server, _) = Server::migrated("counters").await;
    let mut conn = server.connect("postgres").await;
    only_the_counters(&mut conn).await;
    fill_two_orgs(&mut conn).await;
    // The runtime role's own rights must be enough for the triggers.
    run(&mut conn, &format!("SET ROLE undolog_app; SET undolog.current_org_id = '{ORG_A}'")).await;
    assert_eq!(totals(&mut conn).await, (1, 0, 1));

    run(&mut conn, &insert_effect("1", "pending")).await;
    assert_eq!(totals(&mut conn).await, (2, 0, 1), "an insert counts a call");
    for state in ["executing", "committed", "compensating"] {
        run(&mut conn, &format!("UPDATE undolog_effect_log SET state = '{state}'")).await;
    }
    assert_eq!(totals(&mut conn).await, (2, 0, 1), "no other move counts");
    for _ in 0..2 {
        run(&mut conn, "UPDATE undolog_effect_log SET state = 'compensated'").await;
        assert_eq!(totals(&mut conn).await, (2, 2, 1), "each effect counts once, on the move");
    }

    run(&mut conn, &insert_approval("approved")).await;
    assert_eq!(totals(&mut conn).await, (2, 2, 1), "only a pending request counts");
    run(&mut conn, &insert_approval("pending")).await;
    assert_eq!(totals(&mut conn).await, (2, 2, 2));
    run(&mut conn, "UPDATE undolog_approval_requests SET timeout_at = now()").await;
    assert_eq!(totals(&mut conn).await, (2, 2, 2), "a request that stays pending still counts");
    for _ in 0..2 {
        run(&mut conn, "UPDATE undolog_approval_requests SET state = 'rejected'").await;
        assert_eq!(totals(&mut conn).await, (2, 2, 0));
    }
}

#[tokio::test]
async fn a_batch_that_folds_its_counters_is_not_counted_twice() {
    let (server, _) = Server::migrated("folded").await;
    let mut conn = server.connect("postgres").await;
    only_the_counters(&mut conn).await;
    fill_two_orgs(&mut conn).await;
    run(&mut conn, &format!("SET ROLE undolog_app; SET undolog.current_org_id = '{ORG_A}'")).await;
    run(&mut conn, "BEGIN; SET LOCAL undolog.counters_folded = 'on'").await;
    run(&mut conn, &insert_effect("1", "pending")).await;
    run(&mut conn, "UPDATE undolog_effect_log SET state = 'compensated'").await;
    run(&mut conn, &insert_approval("pending")).await;
    run(&mut conn, "UPDATE undolog_approval_requests SET state = 'approved'").await;
    run(&mut conn, "COMMIT").await;
    assert_eq!(totals(&mut conn).await, (1, 0, 1));
    // The setting ended with its transaction.
    run(&mut conn, &insert_effect("2", "pending")).await;
    assert_eq!(totals(&mut conn).await, (2, 0, 1));
}

#[tokio::test]
async fn replay_count_stops_at_its_greatest_value() {
    let (server, _) = Server::migrated("replays").await;
    let mut conn = server.connect("postgres").await;
    fill_two_orgs(&mut conn).await;
    run(&mut conn, "SET ROLE undolog_owner").await;
    run(&mut conn, "UPDATE undolog_effect_log SET replay_count = 32766").await;
    let next = "UPDATE undolog_effect_log SET replay_count = undolog_saturating_next(replay_count)";
    for _ in 0..3 {
        run(&mut conn, next).await;
        let counts: Vec<i16> = sqlx::query_scalar("SELECT replay_count FROM undolog_effect_log")
            .fetch_all(&mut conn)
            .await
            .unwrap();
        assert_eq!(counts, [32767, 32767]);
    }
    let plain = "UPDATE undolog_effect_log SET replay_count = replay_count + 1";
    assert_eq!(refusal(&mut conn, plain).await, "22003", "so the function is needed");
}

#[tokio::test]
async fn one_signature_has_one_row_per_month() {
    let (server, _) = Server::migrated("signature").await;
    let mut conn = server.connect("postgres").await;
    fill_two_orgs(&mut conn).await;
    run(&mut conn, "SET ROLE undolog_owner").await;
    run(&mut conn, &insert_effect("1", "pending")).await;
    assert_eq!(refusal(&mut conn, &insert_effect("1", "pending")).await, "23505");
}
