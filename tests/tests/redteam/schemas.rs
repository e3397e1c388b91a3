//! Schemas that end a process, or keep it busy.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use undolog_proto::v1;
use undolog_tests::world::Org;
use uuid::Uuid;

use crate::bench::{Bench, ask, call, reason, tool};

fn with_schema(name: &str, schema: &Value) -> v1::Tool {
    v1::Tool {
        tool_schema: schema.to_string().into_bytes(),
        irreversibility_reason: "r".into(),
        ..tool(name, "irreversible")
    }
}

fn chain(links: usize, link: fn(Value) -> Value) -> Value {
    let mut defs = Map::new();
    for n in 0..links {
        defs.insert(n.to_string(), link(json!({"$ref": format!("#/$defs/{}", n + 1)})));
    }
    defs.insert(links.to_string(), json!({"type": "object"}));
    json!({"$ref": "#/$defs/0", "$defs": defs})
}

#[tokio::test(flavor = "multi_thread")]
async fn no_chain_of_references_ends_the_process() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let links: [fn(Value) -> Value; 4] = [
        |next| next,
        |next| json!({"allOf": [next]}),
        |next| json!({"properties": {"x": next}}),
        |next| json!({"items": {"anyOf": [next, true]}}),
    ];
    for (n, link) in links.into_iter().enumerate() {
        for length in [600, 1_500, 5_000, 10_000] {
            for client in [&agent, &admin] {
                let schema = chain(length, link);
                let made = bench.tool(client, with_schema(&format!("deep-{n}"), &schema)).await;
                let why = reason(made);
                assert!(["INVALID_ARGUMENT", "LIMIT_EXCEEDED"].contains(&why.as_str()), "{why}");
            }
        }
        // What is taken is compiled again by the call, and dropped with the engine.
        let name = format!("short-{n}");
        bench.tool(&agent, with_schema(&name, &chain(20, link))).await.expect("a short chain");
        ask(&agent, call(Uuid::new_v4(), 1, &name, &json!({}))).await.expect("asked");
    }
    // The longest that is taken.
    let longest = with_schema("longest", &chain(500, |next| json!({"properties": {"x": next}})));
    bench.tool(&agent, longest).await.expect("it is taken");
    ask(&agent, call(Uuid::new_v4(), 1, "longest", &json!({"x": {}}))).await.expect("asked");
    let undo = v1::Compensation {
        fn_name: "undo".into(),
        fn_body: br#"{"kind":"http","method":"POST","endpoint":"https://a.example/"}"#.to_vec(),
        args_schema: chain(2_000, |next| next).to_string().into_bytes(),
        ..v1::Compensation::default()
    };
    let request =
        v1::RegisterCompensationRequest { org_id: String::new(), compensation: Some(undo) };
    let refused = admin.registry().register_compensation(request).await;
    assert_eq!(reason(refused), "INVALID_ARGUMENT");
}

/// 48 × 48 schemas for each item, each with a pattern that has many ways to match.
fn entangled() -> Value {
    let many = |target: &str| vec![json!({"$ref": target}); 48];
    json!({"properties": {"x": {"items": {"allOf": many("#/$defs/a")}}}, "$defs": {
        "a": {"allOf": many("#/$defs/b")},
        "b": {"anyOf": [{"pattern": "^(?:a|a)*c$"}, true]},
    }})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_that_are_much_work_are_refused_and_others_are_in_nobodys_way() {
    let bench = Bench::start().await;
    let agent = bench.agent().await;
    let other = Org::create(bench.db.pool(), "other").await;
    let neighbour = bench.client_of(&other, "agent", "agent-2").await;
    let backtracking = json!({"properties": {"x": {"pattern": "^(?:a|a)*(?=b)c$"}}});
    let refused = bench.tool(&agent, with_schema("back", &backtracking)).await;
    assert_eq!(reason(refused), "INVALID_ARGUMENT", "patterns are matched in linear time");
    bench.tool(&agent, with_schema("slow", &entangled())).await.expect("taken");
    let words = |n: usize| json!({"x": vec!["aaaaaaaaaaaaaa"; n]});
    let huge = ask(&agent, call(Uuid::new_v4(), 1, "slow", &words(1_000))).await;
    assert_eq!(reason(huge), "ARGS_INVALID");
    let storm: Vec<_> = (0..12)
        .map(|n| {
            let (agent, args) = (agent.clone(), words(60));
            tokio::spawn(async move { ask(&agent, call(Uuid::new_v4(), n, "slow", &args)).await })
        })
        .collect();
    // As many looks as fit into the storm: each ends long before it.
    let mut slowest = Duration::ZERO;
    while storm.iter().any(|asked| !asked.is_finished()) {
        let began = Instant::now();
        let list = v1::ListSessionsRequest::default();
        neighbour.sessions().list(list).await.expect("another organisation's list");
        slowest = slowest.max(began.elapsed());
    }
    for asked in storm {
        let answer = asked.await.expect("the task");
        if answer.is_err() {
            assert_eq!(reason(answer), "RATE_LIMITED");
        }
    }
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_honest_call_is_checked_by_the_schema_that_holds_now() {
    let bench = Bench::start().await;
    let admin = bench.admin().await;
    let of = |item: Value| v1::Tool {
        tool_schema: json!({"properties": {"x": {"items": item}}}).to_string().into_bytes(),
        irreversibility_reason: "r".into(),
        ..tool("sum", "irreversible")
    };
    bench.tool(&admin, of(json!({"type": "integer"}))).await.expect("registered");
    let numbers: Vec<u32> = (0..100_000).collect();
    let args = json!({"x": numbers});
    ask(&admin, call(Uuid::new_v4(), 1, "sum", &args)).await.expect("it fits");
    bench.tool(&admin, of(json!({"type": "string"}))).await.expect("changed");
    let refused = ask(&admin, call(Uuid::new_v4(), 1, "sum", &args)).await;
    assert_eq!(reason(refused), "ARGS_INVALID");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_schema_is_small() {
    let bench = Bench::start().await;
    let (admin, agent) = (bench.admin().await, bench.agent().await);
    let schema = json!({"description": "d".repeat(70_000)});
    let refused = bench.tool(&agent, with_schema("large", &schema)).await;
    assert_eq!(reason(refused), "LIMIT_EXCEEDED");
    bench.tool(&admin, with_schema("large", &schema)).await.expect("an administrator's");
}
