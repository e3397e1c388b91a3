//! Properties of the JSON module over many random values.

use proptest::prelude::*;
use serde_json::Value;
use undolog_core::json::{
    Node, Text, canonical, canonical_value_eq, from_serde, from_stored, parse_lossless,
    parse_strict, show_text, shown_from, to_jsonb, to_serde,
};

fn value() -> impl Strategy<Value = Value> {
    let finite = any::<f64>().prop_filter("finite", |f| f.is_finite());
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        finite.prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\u{0}-\u{2f}\\\\{}\u{7f}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        let key = prop_oneof![any::<String>(), "[a-d\"\\\\]{0,3}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Number texts of every shape, the absurd ones included.
fn number_text() -> impl Strategy<Value = String> {
    let whole = "0|[1-9][0-9]{0,30}";
    ("-?", whole, "(\\.[0-9]{1,20})?", "([eE][+-]?[0-9]{1,6})?")
        .prop_map(|(sign, whole, fraction, exponent)| format!("{sign}{whole}{fraction}{exponent}"))
}

/// JSON text with duplicate keys, lone surrogates, NUL and absurd numbers.
fn wild_text() -> impl Strategy<Value = String> {
    let string = prop_oneof![
        Just(r#""\ud800""#.to_owned()),
        Just(r#""\udc00x\ud83d\ude00""#.to_owned()),
        Just(r#""a\u0000b""#.to_owned()),
        any::<String>().prop_map(|text| Value::from(text).to_string()),
    ];
    let odd = prop::sample::select(vec!["null", "-0", "-0.0", "-0.000", "0e9", "-0E-1"]);
    let leaf = prop_oneof![number_text(), string.clone(), odd.prop_map(str::to_owned)];
    leaf.prop_recursive(4, 48, 6, move |inner| {
        let key = prop_oneof![Just("\"a\"".to_owned()), string.clone()];
        let member = (key, inner.clone()).prop_map(|(key, value)| format!("{key} : {value}"));
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| format!("[{}]", items.join(" , "))),
            prop::collection::vec(member, 0..6)
                .prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_printer_prints_as_the_linked_serde_json(value in value()) {
        prop_assert_eq!(canonical(&from_serde(&value)), value.to_string());
    }

    #[test]
    fn every_double_prints_as_the_linked_serde_json(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        let printed = serde_json::to_string(&value).expect("finite");
        let node = parse_strict(printed.as_bytes()).expect("a number");
        prop_assert_eq!(canonical(&node), printed);
    }

    #[test]
    fn ties_print_as_the_linked_serde_json(
        whole in 1u64 << 40..1 << 53,
        eighths in 0u64..8,
        sign in any::<bool>(),
    ) {
        let value = whole as f64 + eighths as f64 / 8.0;
        let value = if sign { -value } else { value };
        for value in [value, value * 1e10, value / 1e20] {
            let printed = serde_json::to_string(&value).expect("finite");
            let node = parse_strict(printed.as_bytes()).expect("a number");
            prop_assert_eq!(canonical(&node), printed);
        }
    }

    #[test]
    fn canonical_text_reads_back_equal(value in value()) {
        let form = canonical(&from_serde(&value));
        let node = parse_strict(form.as_bytes()).expect("canonical text is strict JSON");
        prop_assert_eq!(canonical(&node), form);
    }

    #[test]
    fn the_order_of_keys_changes_nothing(value in value()) {
        fn reversed(node: Node) -> Node {
            match node {
                Node::Array(items) => Node::Array(items.into_iter().map(reversed).collect()),
                Node::Object(members) => {
                    Node::Object(members.into_iter().rev().map(|(k, v)| (k, reversed(v))).collect())
                }
                leaf => leaf,
            }
        }
        let node = from_serde(&value);
        prop_assert_eq!(canonical(&reversed(node.clone())), canonical(&node));
    }

    #[test]
    fn exact_text_keeps_everything(text in wild_text()) {
        let node = parse_lossless(text.as_bytes()).expect("wild text is JSON");
        let again = parse_lossless(node.to_text_exact().as_bytes()).expect("exact text is JSON");
        prop_assert_eq!(&again, &node);
        prop_assert!(canonical_value_eq(&again, &node));
        prop_assert_eq!(parse_strict(text.as_bytes()).is_ok(), node.is_strict());
    }

    #[test]
    fn what_is_stored_comes_back_equal(text in wild_text()) {
        let node = parse_lossless(text.as_bytes()).expect("wild text is JSON");
        let stored = to_jsonb(&node, text.as_bytes());
        let shown = parse_lossless(stored.jsonb_text.as_bytes()).expect("jsonb text is JSON");
        prop_assert!(is_fit_for_jsonb(&shown), "{}", stored.jsonb_text);
        let back = from_stored(&like_jsonb(&shown).to_text_exact(), stored.raw.as_deref());
        prop_assert!(canonical_value_eq(&back.expect("stored text is JSON"), &node));
    }

    #[test]
    fn texts_keep_their_original(text in any::<String>()) {
        for text in [text.clone(), format!("{text}\0{text}")] {
            let (shown, raw) = show_text(&text);
            prop_assert!(!shown.contains('\0'));
            prop_assert_eq!(shown_from(&shown, raw.as_deref()), text);
        }
    }

    #[test]
    fn serde_sees_the_same_value(value in value()) {
        prop_assert_eq!(to_serde(&from_serde(&value)), value);
    }

    #[test]
    fn no_bytes_make_the_parser_panic(
        bytes in any::<Vec<u8>>(),
        text in "[\\[\\]{}\",:0-9eE.+\\-a-z\\\\]{0,40}",
    ) {
        let _ = parse_lossless(&bytes);
        let strict = parse_strict(text.as_bytes());
        let serde = serde_json::from_str::<Value>(&text);
        // Both refuse the same texts, but for what only strict reading refuses.
        if strict.is_ok() {
            prop_assert!(serde.is_ok(), "{} is no JSON", text);
        }
        if serde.is_ok() {
            prop_assert!(parse_lossless(text.as_bytes()).is_ok(), "{} is JSON", text);
        }
    }
}

/// Whether jsonb accepts the value: no NUL, no half of a surrogate pair.
fn is_fit_for_jsonb(node: &Node) -> bool {
    let is_fit = |text: &Text| text.is_exact() && !text.as_str().contains('\0');
    match node {
        Node::String(text) => is_fit(text),
        Node::Array(items) => items.iter().all(is_fit_for_jsonb),
        Node::Object(members) => {
            members.iter().all(|(key, value)| is_fit(key) && is_fit_for_jsonb(value))
        }
        _ => true,
    }
}

/// What jsonb makes of a value: the last of several equal keys, keys in an order of its own,
/// exponents written out, no negative zero.
fn like_jsonb(node: &Node) -> Node {
    match node {
        Node::Number(number) => {
            let text = number.as_text();
            if text.contains(['e', 'E']) {
                return Node::string("written out");
            }
            let is_zero = text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
            let text = if is_zero { text.trim_start_matches('-') } else { &text };
            parse_lossless(text.as_bytes()).expect("a number")
        }
        Node::Array(items) => Node::Array(items.iter().map(like_jsonb).collect()),
        Node::Object(members) => {
            let mut kept: Vec<(_, Node)> = Vec::new();
            for (key, value) in members {
                kept.retain(|(other, _)| other != key);
                kept.push((key.clone(), like_jsonb(value)));
            }
            kept.sort_by_key(|(key, _)| (key.as_str().len(), key.as_str().to_owned()));
            Node::Object(kept)
        }
        leaf => leaf.clone(),
    }
}

#[test]
fn powers_of_two_and_ten_and_their_neighbours_print_as_the_linked_serde_json() {
    let mut values: Vec<f64> = (-1074..1024).map(|n| 2f64.powi(n)).collect();
    values.extend((-323..309).map(|n| format!("1e{n}").parse::<f64>().expect("a double")));
    for value in values {
        for value in
            [value.next_down(), value, value.next_up()].into_iter().filter(|v| v.is_finite())
        {
            let printed = serde_json::to_string(&value).expect("finite");
            let node = parse_strict(printed.as_bytes()).expect("a number");
            assert_eq!(canonical(&node), printed);
        }
    }
}

#[test]
fn serde_json_is_built_without_the_features_that_change_its_values() {
    // With `preserve_order` this would print b first, with `arbitrary_precision` 1.50.
    let value: Value = serde_json::from_str(r#"{"b":1.50,"a":1}"#).expect("JSON");
    assert_eq!(value.to_string(), r#"{"a":1,"b":1.5}"#);
}
