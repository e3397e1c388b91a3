//! The SDK signs what this side makes up as the core does, and refuses what the core refuses. The
//! other way round is `sdk/python/tests/test_signs_alike.py`.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use undolog_core::json::{JsonErrorKind, canonical, parse_strict};
use undolog_core::limits::JSON_DEPTH_MAX;
use undolog_core::signature::call_signature;
use undolog_tests::pg::workspace_root;
use undolog_tests::python;
use uuid::Uuid;

/// The SDK in a process of its own; it ends when its input does.
struct Sdk {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Sdk {
    fn start() -> Self {
        let mut child = Command::new(python::with_sdk())
            .arg(workspace_root().join("tests/python/sign_lines.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { to: child.stdin.take(), child, from }
    }

    fn sign(&mut self, call: &Call) -> Value {
        let line = json!({
            "session_id": call.session, "step_index": call.step, "tool_name": call.tool,
            "args": call.args,
        });
        writeln!(self.to.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{line}: {answer:?}: {e}"))
    }
}

impl Drop for Sdk {
    fn drop(&mut self) {
        drop(self.to.take());
        let _it_has_no_more_to_say = self.child.wait();
    }
}

#[derive(Clone, Debug)]
struct Call {
    session: Uuid,
    step: u32,
    tool: String,
    args: String,
}

/// What the core makes of a call.
fn sign(call: &Call) -> Value {
    match parse_strict(call.args.as_bytes()) {
        Ok(node) => {
            let form = canonical(&node);
            let signature = call_signature(call.session, call.step, &call.tool, &form);
            json!({"canonical": form, "signature": signature.to_string()})
        }
        Err(error) => {
            // Python has read an overflow as an infinity by the time that the SDK sees it.
            let kind = match error.kind {
                JsonErrorKind::NumberOverflow => JsonErrorKind::NotFinite,
                kind => kind,
            };
            json!({"refused": kind.as_str(), "path": error.path})
        }
    }
}

fn call(args: impl Strategy<Value = String>) -> impl Strategy<Value = Call> {
    let steps = prop_oneof![0..50u32, 0..=i32::MAX.cast_unsigned()];
    (any::<u128>(), steps, any::<String>(), args).prop_map(|(session, step, tool, args)| Call {
        session: Uuid::from_u128(session),
        step,
        tool,
        args,
    })
}

/// Doubles by their bits, by their value, and beside powers of ten and two.
fn double() -> impl Strategy<Value = f64> {
    let power = prop_oneof![
        (-330..309i32).prop_map(|n| format!("1e{n}").parse().unwrap_or(0.0)),
        (-1074..1024i32).prop_map(|n| 2f64.powi(n)),
        Just(f64::MAX),
        Just(f64::MIN_POSITIVE),
    ];
    let beside = (power, -2..=2i64, any::<bool>()).prop_map(|(power, off, is_negative)| {
        let near = f64::from_bits(power.to_bits().saturating_add_signed(off));
        if is_negative { -near } else { near }
    });
    prop_oneof![any::<f64>(), -1e6..1e6f64, beside].prop_filter("finite", |f| f.is_finite())
}

/// Plain texts, and texts of quotes, escapes, controls and what sorts differently in UTF-16.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[\u{0}-\u{2f}\\\\{}\\[\\]a-c\u{7f}\u{fb33}\u{ffff}😀]{0,8}"]
}

fn scalar() -> impl Strategy<Value = Value> {
    let edges = [i64::MIN, i64::MIN + 1, -1, 0, 1 << 53, (1 << 53) + 1, i64::MAX];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::sample::select(edges.to_vec()).prop_map(Value::from),
        double().prop_map(Value::from),
        text().prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(6, 80, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A value inside of so many arrays and objects.
fn deep() -> impl Strategy<Value = String> {
    let depth = prop_oneof![1..JSON_DEPTH_MAX + 4, JSON_DEPTH_MAX - 1..=JSON_DEPTH_MAX + 2];
    (depth, any::<u64>(), scalar()).prop_map(|(depth, shape, inner)| {
        let mut value = inner.to_string();
        for level in 0..depth {
            let is_array = (shape >> (level % 64)) & 1 == 0;
            value = if is_array { format!("[{value}]") } else { format!("{{\"a b\":{value}}}") };
        }
        value
    })
}

/// One fault in the midst of what is all right.
fn faulty() -> impl Strategy<Value = String> {
    let half = prop_oneof![
        Just(r#""\ud800""#),
        Just(r#""\udfffx""#),
        Just(r#""\ud83dx\ude00""#),
        Just(r#"{"\udc00":1}"#),
    ];
    let fault = prop_oneof![
        half.prop_map(str::to_owned),
        "(-?[1-9][0-9]{20,40})|18446744073709551616|-9223372036854775809",
        "-?[1-9]e(309|[4-9][0-9]{2})",
        prop::sample::select(vec!["NaN", "Infinity", "-Infinity"]).prop_map(str::to_owned),
    ];
    (fault, prop::collection::vec((text(), value(), any::<bool>()), 0..4)).prop_map(
        |(fault, around)| {
            around.into_iter().fold(fault, |inner, (key, beside, is_array)| {
                if is_array {
                    format!("[{beside}, {inner}]")
                } else {
                    format!("{{{}: {inner}}}", Value::from(key))
                }
            })
        },
    )
}

/// Holds the SDK against the core for so many calls; returns how many of them were refused.
fn compare(cases: u32, args: impl Strategy<Value = String>) -> u32 {
    let sdk = RefCell::new(Sdk::start());
    let refused = RefCell::new(0);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&call(args), |call| {
        let here = sign(&call);
        *refused.borrow_mut() += u32::from(here.get("refused").is_some());
        prop_assert_eq!(sdk.borrow_mut().sign(&call), here);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    refused.into_inner()
}

#[test]
fn the_sdk_signs_what_proptest_makes_as_the_core_does() {
    let compact = value().prop_map(|value| value.to_string());
    let spread = value().prop_map(|value| format!("{value:#}"));
    assert_eq!(compare(4000, prop_oneof![compact, spread]), 0);
    let numbers = prop::collection::vec(double(), 50);
    assert_eq!(compare(400, numbers.prop_map(|numbers| Value::from(numbers).to_string())), 0);
}

#[test]
fn the_sdk_refuses_what_the_core_refuses() {
    assert_eq!(compare(2000, faulty()), 2000);
    let refused = compare(500, deep());
    assert!((50..450).contains(&refused), "{refused} of 500 were too deep");
}
