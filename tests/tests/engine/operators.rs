//! What operators are shown: messages that fit, and where a decision came from.

use prost::Message as _;
use serde_json::json;
use tonic::Request;
use undolog_core::{limits::GRPC_MESSAGE_BYTES_MAX, networks::Networks};
use undolog_proto::v1::{self, intercept_response::Outcome};
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, grant};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_of_the_largest_size_is_shown() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let (agent, operator) = (bench.agent().await, bench.client("operator", "olga").await);
    let session = Uuid::new_v4();
    let effect = grant(&agent, call(session, 1, "pay", &json!({}))).await;
    commit(&agent, session, &effect, &json!({"id": 7})).await.expect("commit");
    let letter = Uuid::now_v7();
    let seed = |size: usize| {
        format!(
            "UPDATE undolog_effect_log SET args_snapshot = to_jsonb(repeat('a', {size})), \
               result_snapshot = to_jsonb(repeat('r', {size})), \
               compensation_args = to_jsonb(repeat('c', {size})); \
             UPDATE undolog_undo_stack SET compensation_args = to_jsonb(repeat('c', {size})); \
             DELETE FROM undolog_dead_letters; DELETE FROM undolog_undo_attempts; \
             INSERT INTO undolog_dead_letters (dead_letter_id, org_id, session_id, effect_id, \
               undo_id, reason, created_at, closed_at, closed_by, resolution, note) \
             SELECT '{letter}', org_id, session_id, effect_id, undo_id, 'EXHAUSTED', now(), now(), \
               'olga', 'resolved', 'refunded in the console' FROM undolog_undo_stack; \
             INSERT INTO undolog_undo_attempts (org_id, session_id, undo_id, rollback_id, round, \
               number, fence, worker, fn_hash, method, url, result_known, started_at, finished_at, \
               outcome, error) \
             SELECT org_id, session_id, undo_id, uuidv7_or_random(), 1, n, 1, 'w', '\\x00', \
             'POST', \
               'https://undo.example/u', true, now(), now(), 'retryable', repeat('e', {error}) \
             FROM undolog_undo_stack, generate_series(1, 120) n",
            error = size / 64,
        )
    };
    let show = |size: usize| {
        let (pool, operator, seed) = (bench.db.pool().clone(), operator.clone(), seed(size));
        async move {
            sqlx::raw_sql(&seed).execute(&pool).await.expect("seed");
            let request = v1::GetDeadLetterRequest {
                dead_letter_id: letter.to_string(),
                ..v1::GetDeadLetterRequest::default()
            };
            operator.operator().get_dead_letter(request).await.expect("shown").into_inner()
        }
    };
    let shown = show(1_000).await;
    assert_eq!(shown.fields_left_out, [""; 0]);
    assert_eq!((shown.attempts.len(), shown.attempts_left_out), (100, 20));
    let item = shown.item.expect("an item");
    assert_eq!(item.dead_letter.expect("a letter").note, "refunded in the console");

    let shown = show(4_000_000).await;
    assert!(shown.encoded_len() < GRPC_MESSAGE_BYTES_MAX, "{} bytes", shown.encoded_len());
    let numbers: Vec<u32> = shown.attempts.iter().map(|attempt| attempt.number).collect();
    let count = u32::try_from(numbers.len()).unwrap();
    assert!((5..100).contains(&count), "{numbers:?}");
    assert_eq!(numbers, (121 - count..=120).rev().collect::<Vec<_>>(), "the newest are shown");
    assert_eq!(shown.attempts_left_out, 120 - count);
    let left_out = ["effect.compensation_args", "effect.result"];
    assert_eq!(shown.fields_left_out[..2], left_out, "what stands elsewhere goes first");
    let next_call = shown.next_call.expect("what a retry would send");
    assert!(next_call.body.len() > 4_000_000 || !next_call.note.is_empty(), "{}", next_call.note);
}

/// Decides about a call as a proxy would pass the decision on, and reads where it came from.
async fn decided_from(bench: &Bench, address: Option<&str>, approves: bool) -> String {
    let admin = bench.admin().await;
    bench.tools(&admin).await;
    let (agent, approver) = (bench.agent().await, bench.client("approver", "ann").await);
    let asked = ask(&agent, call(Uuid::new_v4(), 1, "wipe", &json!({}))).await.expect("asked");
    let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
    let approval_id = asked.approval_id.clone();
    let metadata = |request: &mut tonic::metadata::MetadataMap| {
        if let Some(address) = address {
            request.insert("x-undolog-client-ip", address.parse().expect("metadata"));
        }
    };
    if approves {
        let mut request = Request::new(v1::ApproveRequest { approval_id, ..Default::default() });
        metadata(request.metadata_mut());
        approver.engine().approve(request).await.expect("approve");
    } else {
        let mut request = Request::new(v1::RejectRequest { approval_id, ..Default::default() });
        metadata(request.metadata_mut());
        approver.engine().reject(request).await.expect("reject");
    }
    let request = v1::GetApprovalRequest { approval_id: asked.approval_id, ..Default::default() };
    let shown = approver.operator().get_approval(request).await.expect("shown").into_inner();
    let stored: Option<String> = sqlx::query_scalar(
        "SELECT host(actor_ip) FROM undolog_approval_events ORDER BY occurred_at DESC LIMIT 1",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("an event");
    assert_eq!(shown.events[0].actor_ip, stored.unwrap_or_default());
    shown.events[0].actor_ip.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_decision_came_from_is_believed_of_a_trusted_proxy() {
    let trusting =
        Bench::start_with(|options| options.trusted_proxies = Networks::loopback()).await;
    assert_eq!(decided_from(&trusting, Some("198.51.100.7"), true).await, "198.51.100.7");
    assert_eq!(decided_from(&trusting, Some("2001:db8::7"), false).await, "2001:db8::7");
    assert_eq!(decided_from(&trusting, Some("no address"), true).await, "");
    assert_eq!(decided_from(&trusting, None, true).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_decision_came_from_is_nobody_elses_to_say() {
    let bench = Bench::start().await;
    assert_eq!(decided_from(&bench, Some("198.51.100.7"), true).await, "");
    assert_eq!(decided_from(&bench, Some("198.51.100.7"), false).await, "");
    let elsewhere = Bench::start_with(|options| {
        options.trusted_proxies = Networks::new(vec!["10.0.0.0/8".parse().expect("a network")]);
    })
    .await;
    assert_eq!(decided_from(&elsewhere, Some("198.51.100.7"), true).await, "");
}

/// Begins a session and says that it came through a proxy.
async fn begun_via(bench: &Bench, role: &str, via: &str) -> bool {
    let client = bench.client(role, "agent-7").await;
    let session_id = Uuid::new_v4();
    let mut request =
        Request::new(v1::BeginRequest { session_id: session_id.to_string(), ..Default::default() });
    request.metadata_mut().insert("x-undolog-via", via.parse().expect("metadata"));
    client.sessions().begin(request).await.expect("begin");
    sqlx::query_scalar("SELECT via_proxy FROM undolog_sessions WHERE session_id = $1")
        .bind(session_id)
        .fetch_one(bench.db.pool())
        .await
        .expect("the session")
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_proxy_of_the_organisation_is_believed_to_be_one() {
    let bench = Bench::start().await;
    let proxy = Uuid::new_v4();
    let claim = proxy.to_string();
    assert!(!begun_via(&bench, "agent", "proxy").await, "a word that anybody can say");
    assert!(!begun_via(&bench, "agent", &claim).await, "a number that nobody has ticked with");
    let executor = bench.client("executor", "proxy-1").await;
    let tick = v1::TickRequest { proxy_id: claim.clone() };
    executor.proxy().tick(tick).await.expect("tick");
    assert!(begun_via(&bench, "agent", &claim).await);
}
