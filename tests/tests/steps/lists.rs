//! A list whose filter no index serves reads so many rows for a page and no more: the page is
//! short, or empty, and its token goes on behind what was read.

use undolog_core::limits::LIST_READ_MAX;
use undolog_store::{
    StepError,
    operate::{DeadLetterFilter, UnknownFilter, list_dead_letters, list_unknown},
    read::{ApprovalFilter, Page, Paging, SessionFilter, list_approvals, list_sessions},
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    operate_kit::{halted, lost_payment},
};

/// Rows that do not fit, before and behind the one that does.
const OTHERS: u32 = 2 * LIST_READ_MAX + LIST_READ_MAX / 2;

/// Reads every page: how many there were, and the ids of their rows.
async fn pages<T>(
    id: impl Fn(&T) -> Uuid,
    mut page: impl AsyncFnMut(Paging) -> Result<Page<T>, StepError>,
) -> (usize, Vec<Uuid>) {
    let (mut count, mut ids, mut token) = (0, Vec::new(), String::new());
    loop {
        let one = page(Paging { size: 2, token }).await.expect("a page");
        assert!(one.rows.len() <= 2);
        count += 1;
        assert!(count < 20, "the list never ends");
        ids.extend(one.rows.iter().map(&id));
        token = one.next_token;
        if token.is_empty() {
            return (count, ids);
        }
    }
}

#[tokio::test]
async fn dead_letters_of_a_rare_tool_are_found_page_by_page() {
    let bench = Bench::new().await;
    halted(&bench, 1).await;
    let letter = bench.the_letter().await;
    // Others of another function, of another tool: newer and older ones.
    bench
        .run_sql(&format!(
            "SET session_replication_role = replica; \
             UPDATE undolog_dead_letters SET created_at = created_at - interval '1 day'; \
             WITH n AS (SELECT generate_series(1, {OTHERS}) AS n), \
             u AS (INSERT INTO undolog_undo_stack (undo_id, org_id, session_id, effect_id, \
               stack_position, compensation_fn, compensation_version, compensation_args, state) \
               SELECT gen_random_uuid(), org_id, session_id, effect_id, n + 1, 'undo_other', \
                 compensation_version, compensation_args, 'failed' FROM undolog_undo_stack, n \
               RETURNING *) \
             INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, undo_id, reason, \
               created_at) \
             SELECT org_id, session_id, effect_id, undo_id, 'EXHAUSTED', \
               now() - interval '1 day' \
                 + (stack_position - {OTHERS} / 2) * interval '1 second' FROM u"
        ))
        .await;
    let list = |filter: DeadLetterFilter| {
        let bench = &bench;
        async move {
            pages(
                |item: &undolog_store::operate::DeadLetterItem| item.dead_letter.dead_letter_id,
                async |paging| {
                    list_dead_letters(&bench.store, &bench.operator(), &filter, false, &paging)
                        .await
                },
            )
            .await
        }
    };
    let of = DeadLetterFilter { compensation_fn: "undo_pay".into(), ..Default::default() };
    assert_eq!(list(of).await, (3, vec![letter]), "each row once, in bounded pages");
    let of = DeadLetterFilter { tool_name: "none".into(), ..Default::default() };
    assert_eq!(list(of).await, (3, vec![]), "empty pages go on to the end");
    let of = DeadLetterFilter { reason: "POISON".into(), ..Default::default() };
    assert_eq!(list(of).await, (3, vec![]));
    let old = DeadLetterFilter { older_than_seconds: 172_800, ..Default::default() };
    assert_eq!(list(old).await, (1, vec![]), "what is too new is not read");
}

#[tokio::test]
async fn unknown_effects_of_a_rare_tool_are_found_page_by_page() {
    let bench = Bench::new().await;
    let lost = lost_payment(&bench, 1).await;
    bench
        .run_sql(&format!(
            "SET session_replication_role = replica; \
             INSERT INTO undolog_effect_log (effect_id, org_id, session_id, call_signature, \
               tool_name, tier, step_index, args_snapshot, state, executed_at, lost_at, \
               session_month) \
             SELECT gen_random_uuid(), org_id, session_id, \
               encode(sha256(n::text::bytea), 'hex'), 'other', 'compensable', n, '{{}}', \
               'unknown', executed_at, lost_at + (n - {OTHERS} / 2) * interval '1 second', \
               session_month \
             FROM undolog_effect_log, generate_series(1, {OTHERS}) AS n"
        ))
        .await;
    let filter = UnknownFilter { tool_name: "pay".into(), ..Default::default() };
    let found = pages(
        |one: &undolog_store::operate::UnknownEffect| one.effect.effect_id,
        async |paging| list_unknown(&bench.store, &bench.operator(), &filter, &paging).await,
    )
    .await;
    assert_eq!(found, (3, vec![lost]));
}

#[tokio::test]
async fn an_agents_approvals_are_found_among_those_of_others_page_by_page() {
    let bench = Bench::new().await;
    let (_, own) = crate::bench::awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    bench
        .run_sql(&format!(
            "SET session_replication_role = replica; \
             WITH s AS (INSERT INTO undolog_sessions (org_id, principal, started_at) \
               SELECT org_id, 'somebody else', started_at FROM undolog_sessions \
               RETURNING org_id, session_id) \
             INSERT INTO undolog_approval_requests (org_id, session_id, effect_id, tool_name, \
               irreversibility_reason, proposed_args, timeout_at, created_at) \
             SELECT s.org_id, s.session_id, a.effect_id, a.tool_name, a.irreversibility_reason, \
               a.proposed_args, a.timeout_at, \
               a.created_at + (n - {OTHERS} / 2) * interval '1 second' \
             FROM s, undolog_approval_requests a, generate_series(1, {OTHERS}) AS n"
        ))
        .await;
    let list = |states: Vec<String>| {
        let bench = &bench;
        async move {
            let filter = ApprovalFilter { states, session_id: None };
            pages(
                |view: &undolog_store::read::ApprovalView| view.approval_id,
                async |paging| list_approvals(&bench.store, &bench.agent(), &filter, &paging).await,
            )
            .await
        }
    };
    assert_eq!(list(vec![]).await, (3, vec![own]));
    let several = ["pending", "approved"].map(str::to_owned).to_vec();
    assert_eq!(list(several).await, (5, vec![own]), "half as many of each state for a page");
}

#[tokio::test]
async fn an_agents_sessions_of_a_run_are_found_among_those_of_others_page_by_page() {
    let bench = Bench::new().await;
    bench.grant(1, "pay").await;
    bench
        .run_sql(&format!(
            "SET session_replication_role = replica; \
             UPDATE undolog_sessions SET external_run_id = 'nightly'; \
             INSERT INTO undolog_sessions (org_id, principal, external_run_id, started_at) \
             SELECT org_id, 'somebody else', 'nightly', \
               started_at + (n - {OTHERS} / 2) * interval '1 second' \
             FROM undolog_sessions, generate_series(1, {OTHERS}) AS n"
        ))
        .await;
    let filter = SessionFilter { states: vec!["active".into()], external_run_id: "nightly".into() };
    let found = pages(
        |view: &undolog_store::read::SessionView| view.session_id,
        async |paging| list_sessions(&bench.store, &bench.agent(), &filter, &paging).await,
    )
    .await;
    assert_eq!(found, (3, vec![bench.session]));
}
