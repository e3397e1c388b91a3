//! How a call is read: arguments, signatures, steps and compensations.

use serde_json::json;
use undolog_core::{Reason, Tier, json::parse_strict, role::Role, signature::call_signature};
use undolog_store::intercept::{DescriptorInput, StepRef};

use crate::bench::{AGENT, Bench, executed, refused};

#[tokio::test]
async fn bad_arguments_write_no_row() {
    let bench = Bench::new().await;
    let too_deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for bad in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":NaN}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":18446744073709551616}"#,
        r#"{"a":1e400}"#,
        r#"{"a":1"#,
        &too_deep,
    ] {
        let mut input = bench.input(1, "pay", &json!({}));
        input.args = bad.as_bytes().to_vec();
        refused(bench.send(input).await, Reason::ArgsInvalid);
    }
    let mut input = bench.input(1, "pay", &json!({}));
    input.args = vec![b' '; 4 * 1024 * 1024 + 1];
    refused(bench.send(input).await, Reason::LimitExceeded);
    assert_eq!(bench.count("undolog_sessions").await, 0);
}

#[tokio::test]
async fn arguments_are_checked_against_the_schema() {
    let bench = Bench::new().await;
    let schema = json!({"name": "send", "inputSchema": {
        "type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}}});
    bench
        .tool("send", Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.tool_schema = schema.to_string().into_bytes();
        })
        .await;
    refused(bench.send(bench.input(1, "send", &json!({}))).await, Reason::ArgsInvalid);
    refused(bench.send(bench.input(1, "send", &json!({"to": 1}))).await, Reason::ArgsInvalid);
    assert_eq!(bench.count("undolog_sessions").await, 0);
    executed(&bench.send(bench.input(1, "send", &json!({"to": "a"}))).await.expect("fits"));
}

#[tokio::test]
async fn key_order_and_numbers_do_not_change_a_call_but_quotes_in_keys_do() {
    let bench = Bench::new().await;
    let raw = |step, text: &str| {
        let mut input = bench.input(step, "pay", &json!({}));
        input.args = text.as_bytes().to_vec();
        input
    };
    executed(&bench.send(raw(1, r#"{"b":1,"a":2}"#)).await.expect("grant"));
    refused(bench.send(raw(1, r#"{ "a" : 2, "b" : 1 }"#)).await, Reason::InProgress);
    executed(&bench.send(raw(2, r#"{"a\":1,\"b":2}"#)).await.expect("grant"));
    refused(bench.send(raw(2, r#"{"a":1,"b":2}"#)).await, Reason::StepConflict);
}

#[tokio::test]
async fn a_nul_in_the_arguments_is_kept() {
    let bench = Bench::new().await;
    let text = r#"{"a":"x\u0000y","n":1e2,"big":12345678901234567890}"#;
    let mut input = bench.input(1, "pay", &json!({}));
    input.args = text.as_bytes().to_vec();
    executed(&bench.send(input.clone()).await.expect("grant"));
    let raw: Vec<u8> = sqlx::query_scalar("SELECT args_snapshot_raw FROM undolog_effect_log")
        .fetch_one(bench.db.pool())
        .await
        .expect("the raw bytes");
    assert_eq!(raw, text.as_bytes());
    refused(bench.send(input).await, Reason::InProgress);
}

#[tokio::test]
async fn a_supplied_signature_must_be_the_documented_one() {
    let bench = Bench::new().await;
    let args = parse_strict(br#"{"a":1}"#).expect("JSON");
    let right = call_signature(bench.session, 4, "pay", &undolog_core::json::canonical(&args));
    let with = |signature: &str| {
        let mut input = bench.input(4, "pay", &json!({"a": 1}));
        input.step = StepRef::Index { step_index: 4, signature: Some(signature.into()) };
        input
    };
    refused(bench.send(with(&"0".repeat(64))).await, Reason::SignatureMismatch);
    refused(bench.send(with("short")).await, Reason::SignatureMismatch);
    assert_eq!(bench.count("undolog_effect_log").await, 0);
    executed(&bench.send(with(&right.to_string())).await.expect("grant"));
    let stored = bench
        .text("SELECT call_signature::text FROM undolog_effect_log WHERE session_id = $1")
        .await;
    assert_eq!(stored, right.to_string());
}

#[tokio::test]
async fn a_step_key_is_numbered_by_the_engine_and_found_again() {
    let bench = Bench::new().await;
    let with = |key: &str, args| {
        let mut input = bench.input(0, "pay", &args);
        input.step = StepRef::Key(key.into());
        input
    };
    let first = executed(&bench.send(with("call-a", json!({"x": 1}))).await.expect("grant"));
    executed(
        &bench.send(with("call-b", json!({"x": 1}))).await.expect("the same call, another key"),
    );
    refused(bench.send(with("call-a", json!({"x": 1}))).await, Reason::InProgress);
    refused(bench.send(with("call-a", json!({"x": 2}))).await, Reason::StepConflict);
    refused(bench.ask(9, "pay").await, Reason::StepInvalid);
    refused(bench.send(with("", json!({}))).await, Reason::StepInvalid);
    let steps = bench
        .text(
            "SELECT string_agg(step_key || step_index, ' ' ORDER BY step_index) \
             FROM undolog_effect_log WHERE session_id = $1",
        )
        .await;
    assert_eq!(steps, "call-a1 call-b2");
    bench.commit(first, &json!(1)).await.expect("commit");
    bench.check().await;
}

#[tokio::test]
async fn an_agent_cannot_choose_the_compensation_unless_it_is_listed() {
    let bench = Bench::new().await;
    bench.compensation("undo_other", json!({})).await;
    let with = |step, name: &str| {
        let mut input = bench.input(step, "pay", &json!({"to": "a@b"}));
        input.compensation = Some(DescriptorInput {
            fn_name: name.into(),
            args: br#"{"to":"{to}","id":"{result.id}"}"#.to_vec(),
            max_retries: Some(5),
            retry_backoff_ms: Some(10),
            ..DescriptorInput::default()
        });
        input
    };
    refused(bench.send(with(1, "undo_other")).await, Reason::CompensationRefused);
    assert_eq!(bench.count("undolog_sessions").await, 0);
    executed(&bench.send(with(1, "undo_pay")).await.expect("the registry's own"));
    let entry = bench
        .text(
            "SELECT compensation_fn || compensation_args || max_retries || '/' || \
             retry_backoff_ms FROM undolog_undo_stack WHERE session_id = $1",
        )
        .await;
    // Within the registration's numbers: no more calls and no shorter pauses.
    assert_eq!(entry, r#"undo_pay{"id": "{result.id}", "to": "a@b"}3/1000"#);
    bench
        .tool("pay", Tier::Compensable, |tool| {
            tool.compensation_ref = "undo_pay".into();
            tool.allowed_compensations = vec!["undo_other".into()];
        })
        .await;
    executed(&bench.send(with(2, "undo_other")).await.expect("listed by an admin"));
}

#[tokio::test]
async fn a_compensation_that_cannot_be_filled_in_is_refused_before_the_call() {
    let bench = Bench::new().await;
    bench.compensation("undo_args", json!({"arg_mapping": {"a": "{args.amount}"}})).await;
    bench
        .tool("charge", Tier::Compensable, |tool| tool.compensation_ref = "undo_args".into())
        .await;
    refused(bench.send(bench.input(1, "charge", &json!({}))).await, Reason::CompensationUnusable);
    executed(&bench.send(bench.input(1, "charge", &json!({"amount": 3}))).await.expect("fits"));
    sqlx::query("UPDATE undolog_compensation_registry SET is_active = false")
        .execute(bench.db.pool())
        .await
        .expect("switch it off");
    sqlx::query("UPDATE undolog_orgs SET registry_epoch = registry_epoch + 1")
        .execute(bench.db.pool())
        .await
        .expect("as the registry does");
    refused(
        bench.send(bench.input(2, "charge", &json!({"amount": 3}))).await,
        Reason::CompensationUnusable,
    );
}

#[tokio::test]
async fn sessions_belong_to_their_principal_and_their_organisation() {
    let bench = Bench::new().await;
    let effect = bench.grant(1, "pay").await;
    let mut other = bench.input(2, "pay", &json!({}));
    other.caller = bench.caller(Role::Agent, "agent-2");
    refused(bench.send(other).await, Reason::SessionNotFound);

    let stranger = undolog_tests::world::Org::create(bench.db.pool(), "evil").await;
    let mut foreign = bench.input(2, "pay", &json!({}));
    foreign.caller.org_id = stranger.id;
    refused(bench.send(foreign).await, Reason::ToolNotRegistered);
    bench.org.set(bench.db.pool(), "name", "acme again").await;
    let own: i64 = sqlx::query_scalar("SELECT count(*) FROM undolog_sessions WHERE org_id = $1")
        .bind(stranger.id)
        .fetch_one(bench.db.pool())
        .await
        .expect("count");
    assert_eq!(own, 0, "the id is taken: nothing is written under it");

    let mut executor = bench.input(2, "pay", &json!({}));
    executor.caller = bench.caller(Role::Executor, AGENT);
    refused(bench.send(executor).await, Reason::PermissionDenied);
    bench.commit(effect, &json!(1)).await.expect("its owner may");
}
