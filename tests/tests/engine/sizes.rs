//! No answer is larger than a message may be, whatever the limits let in; nothing looks empty that
//! is not; and everything can be read.

use std::collections::BTreeMap;

use prost::Message;
use serde_json::json;
use tonic::Status;
use undolog_core::limits::{GRPC_MESSAGE_BYTES_MAX, TEXT_BYTES_MAX};
use undolog_proto::v1::{
    self, intercept_response::Outcome, undo_log_proxy_client::UndoLogProxyClient,
};
use undolog_tests::world::{Client, Keyed};
use uuid::Uuid;

use super::bench::{Bench, ask, call, commit, grant, reason, tool};

/// Just below the documented limit of arguments and results.
const LARGE: usize = 4_000_000;
/// gRPC's own limit of what a client takes.
const DEFAULT_CLIENT: usize = 4 * 1024 * 1024;

/// A bench with one session of large calls, a request with large arguments, and their rows.
struct Sizes {
    bench: Bench,
    operator: Client,
    session: Uuid,
    effects: Vec<String>,
    approval: String,
}

impl Sizes {
    /// Six calls with arguments, results and captured compensation arguments of this size, and a
    /// request for one more call.
    async fn start(bytes: usize) -> Self {
        let bench = Bench::start().await;
        let admin = bench.admin().await;
        bench.tools(&admin).await;
        let agent = bench.agent().await;
        let session = Uuid::new_v4();
        let mut effects = Vec::new();
        for step in 1..=6 {
            let mut request = call(session, step, "pay", &json!({"n": step}));
            request.compensation = Some(v1::CompensationDescriptor {
                fn_name: "undo_pay".to_owned(),
                args: br#"{"v":"{n}"}"#.to_vec(),
                ..v1::CompensationDescriptor::default()
            });
            let effect = grant(&agent, request).await;
            commit(&agent, session, &effect, &json!({"r": step})).await.expect("commit");
            effects.push(effect);
        }
        let asked = ask(&agent, call(session, 7, "wipe", &json!({}))).await.expect("asked");
        let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
        let operator = bench.client("operator", "olga").await;
        let sizes = Self { bench, operator, session, effects, approval: asked.approval_id };
        // Large values are written past the engine, whose parsing takes its time in a test's build.
        sizes
            .sql(&format!(
                "CREATE FUNCTION large(name text, value text) RETURNS bytea LANGUAGE sql AS \
                   $$ SELECT convert_to(format('{{%s:%s}}', to_json(name), to_json(value)), \
                   'UTF8') $$; \
                 UPDATE undolog_effect_log SET \
                   args_snapshot_raw = large('n', step_index || repeat('a', {bytes})), \
                   result_snapshot_raw = CASE WHEN step_index < 7 THEN \
                     large('r', step_index || repeat('r', {bytes})) END, \
                   compensation_args_raw = CASE WHEN step_index < 7 THEN \
                     large('v', step_index || repeat('a', {bytes})) END; \
                 UPDATE undolog_undo_stack SET compensation_args_raw = \
                   large('v', stack_position || repeat('a', {bytes})); \
                 UPDATE undolog_approval_requests SET proposed_args_raw = \
                   large('n', repeat('p', {bytes}))"
            ))
            .await;
        sizes
    }

    async fn sql(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(self.bench.db.pool()).await.expect(sql);
    }

    async fn value(&self, of: &str, id: &str, field: &str) -> Vec<u8> {
        value(&self.operator, of, id, field).await.expect("a value")
    }
}

/// Reads a value, part after part.
async fn value(client: &Client, of: &str, id: &str, field: &str) -> Result<Vec<u8>, Status> {
    let (mut whole, mut digest) = (Vec::new(), None);
    loop {
        let request = v1::GetValueRequest {
            of: of.to_owned(),
            id: id.to_owned(),
            field: field.to_owned(),
            offset: whole.len() as u64,
            ..v1::GetValueRequest::default()
        };
        let answer = client.sessions().get_value(request).await?.into_inner();
        assert!(answer.encoded_len() < DEFAULT_CLIENT);
        assert_eq!(*digest.get_or_insert_with(|| answer.digest.clone()), answer.digest);
        whole.extend(answer.part);
        if whole.len() as u64 == answer.total_bytes {
            return Ok(whole);
        }
    }
}

/// An answer that every client takes.
#[track_caller]
fn small<M: Message>(what: &str, answer: &M) {
    assert!(answer.encoded_len() < DEFAULT_CLIENT, "{what}: {} bytes", answer.encoded_len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_large_calls_is_shown_and_every_value_can_be_read() {
    let sizes = Sizes::start(LARGE).await;
    let mut sessions = sizes.operator.sessions();
    let session_id = sizes.session.to_string();
    let get = v1::GetSessionRequest { session_id: session_id.clone(), ..Default::default() };
    let shown = sessions.get(get).await.expect("the session").into_inner();
    small("Get", &shown);
    assert_eq!(shown.undo_stack.len(), 6, "every entry is shown, if without its arguments");
    for (entry, step) in shown.undo_stack.iter().zip((1..=6).rev()) {
        assert_eq!(entry.fields_left_out, ["compensation_args"]);
        if step % 5 != 1 {
            continue;
        }
        let args = sizes.value("undo_entry", &entry.undo_id, "compensation_args").await;
        assert_eq!(args, format!(r#"{{"v":"{step}{}"}}"#, "a".repeat(LARGE)).into_bytes());
    }

    let dry =
        v1::RollbackRequest { session_id: session_id.clone(), dry_run: true, ..Default::default() };
    let plan = sessions.rollback(dry).await.expect("a plan").into_inner();
    assert!(plan.encoded_len() < GRPC_MESSAGE_BYTES_MAX, "{} bytes", plan.encoded_len());
    assert_eq!((plan.plan.len(), plan.truncated), (6, false));
    let with_body = plan.plan.iter().filter(|call| !call.body.is_empty()).count();
    assert_eq!(with_body, 1, "the first one that fits into a row");
    let call = &plan.plan[5];
    assert_eq!(
        (call.action.as_str(), &call.fields_left_out[..]),
        ("call", &["body".to_owned()][..])
    );
    let body = sizes.value("next_call", &call.undo_id, "body").await;
    assert!(body.starts_with(br#"{"v":"1aaa"#) && body.len() > LARGE, "{} bytes", body.len());

    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let request = v1::ListEffectsRequest {
            session_id: session_id.clone(),
            page_token: token,
            ..v1::ListEffectsRequest::default()
        };
        let page = sessions.list_effects(request).await.expect("a page").into_inner();
        assert!(page.encoded_len() < GRPC_MESSAGE_BYTES_MAX);
        for effect in page.effects.iter().filter(|effect| effect.step_index < 7) {
            for (field, bytes) in [("args", &effect.args), ("result", &effect.result)] {
                let is_left_out = effect.fields_left_out.iter().any(|name| name == field);
                assert_eq!(bytes.is_empty(), is_left_out, "{field} of {}", effect.step_index);
            }
        }
        seen.extend(page.effects);
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(seen.len(), 7);
    let left_out = seen.iter().find(|effect| !effect.fields_left_out.is_empty()).expect("one");
    for field in ["args", "result", "compensation_args"] {
        let whole = sizes.value("effect", &left_out.effect_id, field).await;
        assert!(whole.len() > LARGE, "{field}: {} bytes", whole.len());
    }
    assert!(sizes.effects.contains(&left_out.effect_id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_stack_is_shown_in_pages_and_a_plan_too() {
    let sizes = Sizes::start(10).await;
    // 1,200 entries with 25 KB of captured arguments and as much of an error each.
    sizes
        .sql(
            "UPDATE undolog_undo_stack SET last_error = repeat('e', 1000), \
               compensation_args_raw = convert_to(to_json(repeat('c', 25000))::text, 'UTF8'); \
             INSERT INTO undolog_undo_stack SELECT (jsonb_populate_record( \
               NULL::undolog_undo_stack, to_jsonb(u) || jsonb_build_object( \
               'undo_id', gen_random_uuid(), 'stack_position', 1000 + n))).* \
             FROM (SELECT * FROM undolog_undo_stack ORDER BY stack_position LIMIT 1) u, \
               generate_series(1, 1200) n",
        )
        .await;
    let mut sessions = sizes.operator.sessions();
    let session_id = sizes.session.to_string();
    let (mut positions, mut left_out, mut token, mut pages) = (Vec::new(), 0, String::new(), 0);
    loop {
        let request = v1::GetSessionRequest {
            session_id: session_id.clone(),
            undo_page_token: token,
            ..v1::GetSessionRequest::default()
        };
        let page = sessions.get(request).await.expect("a page").into_inner();
        small("Get", &page);
        for entry in &page.undo_stack {
            assert_eq!(entry.compensation_args.is_empty(), !entry.fields_left_out.is_empty());
            left_out += usize::from(entry.compensation_args.is_empty());
        }
        positions.extend(page.undo_stack.iter().map(|entry| entry.position));
        pages += 1;
        token = page.undo_next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((positions.len(), pages), (1206, 3));
    assert!(positions.is_sorted_by(|a, b| a > b), "each entry once, from the top");
    assert!(left_out > 900, "{left_out}");

    let (mut planned, mut token) = (Vec::new(), String::new());
    let dry = |page_token: String| v1::RollbackRequest {
        session_id: session_id.clone(),
        dry_run: true,
        page_token,
        ..v1::RollbackRequest::default()
    };
    loop {
        let page = sessions.rollback(dry(token)).await.expect("a plan").into_inner();
        small("the plan", &page);
        planned.extend(page.plan.iter().map(|call| call.undo_id.clone()));
        token = page.next_page_token.clone();
        assert_eq!(page.truncated, !token.is_empty());
        if token.is_empty() {
            break;
        }
    }
    let once: std::collections::BTreeSet<_> = planned.iter().collect();
    assert_eq!((once.len(), planned.len()), (1206, 1206));
    // A page goes on where the session stood.
    let first = sessions.rollback(dry(String::new())).await.expect("a plan").into_inner();
    let point = v1::SavepointRequest { session_id: session_id.clone(), ..Default::default() };
    sizes.bench.agent().await.sessions().savepoint(point).await.expect("a savepoint");
    assert_eq!(reason(sessions.rollback(dry(first.next_page_token)).await), "CURSOR_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_values_of_its_own_sessions_only() {
    let sizes = Sizes::start(LARGE).await;
    let other = undolog_tests::world::Org::create(sizes.bench.db.pool(), "other").await;
    let strangers = [
        sizes.bench.client("agent", "agent-2").await,
        sizes.bench.client_of(&other, "admin", "root").await,
    ];
    let undo: Uuid = sqlx::query_scalar("SELECT undo_id FROM undolog_undo_stack LIMIT 1")
        .fetch_one(sizes.bench.db.pool())
        .await
        .expect("an entry");
    let undo = undo.to_string();
    let own = sizes.bench.agent().await;
    let rows = [
        ("effect", sizes.effects[0].as_str(), "args", "EFFECT_NOT_FOUND"),
        ("undo_entry", undo.as_str(), "compensation_args", "EFFECT_NOT_FOUND"),
        ("next_call", undo.as_str(), "body", "EFFECT_NOT_FOUND"),
        ("approval", sizes.approval.as_str(), "proposed_args", "APPROVAL_NOT_FOUND"),
    ];
    for (of, id, field, refusal) in rows {
        assert!(value(&own, of, id, field).await.expect("its own").len() > LARGE);
        for stranger in &strangers {
            assert_eq!(reason(value(stranger, of, id, field).await), refusal, "{of}");
        }
        for (of, field) in [(of, "nothing"), ("nothing", field)] {
            assert_eq!(reason(value(&own, of, id, field).await), "INVALID_ARGUMENT");
        }
    }
    let beyond = v1::GetValueRequest {
        of: "effect".to_owned(),
        id: sizes.effects[0].clone(),
        field: "args".to_owned(),
        offset: u64::MAX,
        ..v1::GetValueRequest::default()
    };
    assert_eq!(reason(own.sessions().get_value(beyond).await), "INVALID_ARGUMENT");
}

/// Fills every table that an answer is made of with the largest rows that the limits let in.
fn worst(large: usize, text: usize) -> String {
    format!(
        "UPDATE undolog_effect_log SET error = repeat('e', {text}), \
           result_snapshot_raw = large('r', repeat('r', {large})), \
           compensation_args_raw = large('c', repeat('c', {large})); \
         UPDATE undolog_undo_stack SET last_error = repeat('e', {text}), \
           skip_reason = repeat('s', {text}); \
         UPDATE undolog_sessions SET failure_reason = repeat('f', {text}), \
           metadata = to_jsonb(repeat('m', {text})); \
         UPDATE undolog_approval_requests SET irreversibility_reason = repeat('i', {text}), \
           estimated_impact = repeat('i', {text}), agent_context = to_jsonb(repeat('x', {text})), \
           approved_args = '{{}}', approved_args_raw = large('b', repeat('b', {large})), \
           risk_tags = ARRAY(SELECT repeat('t', 250) || n FROM generate_series(1, 64) n); \
         INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor, note, \
           args_diff, occurred_at) SELECT approval_request_id, org_id, 'modify', 'ann', 'n', \
           to_jsonb(repeat('d', {large} / 40)), now() \
           FROM undolog_approval_requests, generate_series(1, 60); \
         INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor, note, \
           occurred_at) SELECT approval_request_id, org_id, 'modify', repeat('w', {text}), \
           repeat('n', {text}), now() FROM undolog_approval_requests, generate_series(1, 60); \
         INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor, note, \
           args_diff, occurred_at) SELECT approval_request_id, org_id, 'modify', 'ann', 'last', \
           to_jsonb(repeat('D', {large})), now() FROM undolog_approval_requests; \
         INSERT INTO undolog_rollbacks SELECT (jsonb_populate_record(NULL::undolog_rollbacks, \
           to_jsonb(r) || jsonb_build_object('rollback_id', gen_random_uuid(), \
           'reason', repeat('r', {text}), 'state', 'compensated'))).* \
           FROM undolog_rollbacks r, generate_series(1, 60); \
         INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, reason, detail, \
           created_at, closed_at, closed_by, resolution, note) \
           SELECT org_id, session_id, effect_id, 'EXHAUSTED', repeat('d', {text}), now(), now(), \
           'olga', 'resolved', repeat('n', {text}) FROM (SELECT * FROM undolog_effect_log \
           ORDER BY step_index LIMIT 1) e, generate_series(1, 60); \
         UPDATE undolog_approval_requests \
           SET proposed_args_raw = large('n', repeat('p', {large})); \
         UPDATE undolog_tool_registry SET upstream = '{{}}' \
           WHERE tool_name = 'wipe'; \
         INSERT INTO undolog_pauses (org_id, compensation_fn, paused_at, paused_by, reason) \
           SELECT org_id, 'f' || n, now(), 'olga', repeat('p', {text}) \
           FROM undolog_orgs, generate_series(1, 200) n; \
         INSERT INTO undolog_route_breakers (org_id, compensation_fn, host, state, \
           window_started_at) SELECT org_id, 'f', 'h' || n, 'closed', now() \
           FROM undolog_orgs, generate_series(1, 1200) n"
    )
}

/// Registers sixty tools and compensations of the largest size.
async fn register(sizes: &Sizes, admin: &Client) {
    for n in 0..60 {
        let text = "t".repeat(TEXT_BYTES_MAX - 10);
        let schema = json!({"description": "s".repeat(250_000)}).to_string().into_bytes();
        let wipe = v1::Tool {
            irreversibility_reason: text.clone(),
            estimated_impact: text.clone(),
            tool_schema: schema.clone(),
            ..tool(&format!("big-{n}"), "irreversible")
        };
        sizes.bench.tool(admin, wipe).await.expect("register");
        let undo = v1::Compensation {
            fn_name: format!("big-{n}"),
            description: text,
            fn_body: br#"{"kind":"http","method":"POST","endpoint":"https://a.example/"}"#.to_vec(),
            args_schema: schema,
            ..v1::Compensation::default()
        };
        let compensation =
            v1::RegisterCompensationRequest { org_id: String::new(), compensation: Some(undo) };
        admin.registry().register_compensation(compensation).await.expect("register");
    }
}

/// Four approved calls that wait for a proxy, and a session that has failed.
async fn approve_and_fail(sizes: &Sizes, admin: &Client) {
    let agent = sizes.bench.agent().await;
    let approver = sizes.bench.client("approver", "ann").await;
    let waiting = Uuid::new_v4();
    for step in 1..=4 {
        let asked = ask(&agent, call(waiting, step, "wipe", &json!({}))).await.expect("asked");
        let Outcome::AwaitingApproval(asked) = asked else { panic!("{asked:?}") };
        let request =
            v1::ApproveRequest { approval_id: asked.approval_id, ..v1::ApproveRequest::default() };
        approver.engine().approve(request).await.expect("approve");
    }
    let session_id = sizes.session.to_string();
    let fail = v1::FailSessionRequest { session_id, rollback: true, ..Default::default() };
    admin.sessions().fail_session(fail).await.expect("fail");
}

/// What the calls of a test answered.
#[derive(Default)]
struct Answers {
    /// The largest answer of each call.
    largest: BTreeMap<&'static str, usize>,
    /// How many rows there were together.
    rows: BTreeMap<&'static str, usize>,
}

impl Answers {
    fn seen<M: Message>(&mut self, method: &'static str, answer: &M, rows: usize) {
        let largest = self.largest.entry(method).or_default();
        *largest = answer.encoded_len().max(*largest);
        *self.rows.entry(method).or_default() += rows;
    }
}

/// Reads every page of a list.
macro_rules! pages {
    ($all:ident, $client:ident.$method:ident($request:ident.$token:ident $($field:ident)*)
        -> $rows:ident, $next:ident) => {{
        let mut token = String::new();
        loop {
            let request = v1::$request {
                $($field: $field.clone(),)* $token: token, ..v1::$request::default()
            };
            let answer = $client.clone().$method(request).await;
            let answer = answer.expect(stringify!($method)).into_inner();
            $all.seen(stringify!($method), &answer, answer.$rows.len());
            token = answer.$next;
            if token.is_empty() {
                break;
            }
        }
    }};
}

async fn read_sessions(sizes: &Sizes, all: &mut Answers) {
    let (sessions, session_id) = (sizes.operator.sessions(), sizes.session.to_string());
    pages!(all, sessions.get(GetSessionRequest.undo_page_token session_id)
        -> undo_stack, undo_next_page_token);
    pages!(all, sessions.get(GetSessionRequest.rollbacks_page_token session_id)
        -> rollbacks, rollbacks_next_page_token);
    pages!(all, sessions.get(GetSessionRequest.dead_letters_page_token session_id)
        -> dead_letters, dead_letters_next_page_token);
    pages!(all, sessions.list(ListSessionsRequest.page_token) -> sessions, next_page_token);
    pages!(all, sessions.list_effects(ListEffectsRequest.page_token session_id)
        -> effects, next_page_token);
    let dry = v1::RollbackRequest { session_id, dry_run: true, ..Default::default() };
    let plan = sessions.clone().rollback(dry).await.expect("a plan").into_inner();
    all.seen("rollback", &plan, plan.plan.len());
}

async fn read_the_rest(sizes: &Sizes, proxies: &UndoLogProxyClient<Keyed>, all: &mut Answers) {
    let (operator, registry) = (sizes.operator.operator(), sizes.operator.registry());
    let approval_id = sizes.approval.clone();
    let states = vec!["rejected".to_owned(), "approved".to_owned()];
    pages!(all, operator.list_approvals(ListApprovalsRequest.page_token states)
        -> approvals, next_page_token);
    pages!(all, operator.get_approval(GetApprovalRequest.events_page_token approval_id)
        -> events, events_next_page_token);
    let closed = true;
    pages!(all, operator.list_dead_letters(ListDeadLettersRequest.page_token closed)
        -> dead_letters, next_page_token);
    pages!(all, operator.get_queue_status(GetQueueStatusRequest.page_token)
        -> pauses, next_page_token);
    pages!(all, registry.list_tools(ListToolsRequest.page_token) -> tools, next_page_token);
    pages!(all, registry.list_compensations(ListCompensationsRequest.page_token)
        -> compensations, next_page_token);
    pages!(all, proxies.list_approved(ListApprovedRequest.page_token) -> calls, next_page_token);
    let watch = v1::WatchApprovalRequest { approval_id, ..Default::default() };
    let mut updates = operator.clone().watch_approval(watch).await.expect("updates").into_inner();
    let update = updates.message().await.expect("an update").expect("an update");
    all.seen("watch_approval", &update, 1);
    let unknown = "SET session_replication_role = replica; \
                   UPDATE undolog_effect_log SET state = 'unknown', lost_at = now()";
    sizes.sql(unknown).await;
    pages!(all, operator.list_unknown(ListUnknownRequest.page_token) -> effects, next_page_token);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_of_any_call_is_larger_than_a_message() {
    let sizes = Sizes::start(LARGE).await;
    let admin = sizes.bench.admin().await;
    let proxies = sizes.bench.client("executor", "proxy").await.proxy();
    register(&sizes, &admin).await;
    approve_and_fail(&sizes, &admin).await;
    sizes.sql(&worst(LARGE, TEXT_BYTES_MAX)).await;
    let mut all = Answers::default();
    read_sessions(&sizes, &mut all).await;
    read_the_rest(&sizes, &proxies, &mut all).await;
    for (method, rows) in [
        ("list_effects", 7),
        ("rollback", 6),
        ("list_unknown", 11),
        ("get_queue_status", 200),
        ("list_tools", 63),
        ("list_compensations", 61),
        ("list_approved", 4),
        ("list_approvals", 5),
        ("get_approval", 122),
        ("list_dead_letters", 60),
    ] {
        assert_eq!(all.rows[method], rows, "{method}");
    }
    for (method, bytes) in all.largest {
        assert!(bytes < GRPC_MESSAGE_BYTES_MAX, "{method}: {bytes} bytes");
    }
}
