//! The shared vectors: canonical bytes, digests, refusals and renderings that a second
//! implementation computed (`tests/vectors/generate.py`).

use std::collections::BTreeSet;

use serde_json::Value;
use undolog_core::json::{JsonErrorKind, Node, canonical, parse_lossless, parse_strict};
use undolog_core::signature::call_signature;
use undolog_core::template::{
    Pending, RenderError, complete, pending_from_node, pending_to_node, render_descriptor,
};

fn cases(file: &str) -> Vec<Value> {
    let path = format!("{}/../tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).expect("the vectors are part of the repository");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a vector file is a JSON array");
    assert!(cases.len() > 10, "{file} has {} cases", cases.len());
    cases
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("{case} has no text {field}"))
}

#[test]
fn canonical_form_is_the_one_of_the_second_implementation() {
    for case in cases("canonical.json") {
        let node = parse_strict(text(&case, "input").as_bytes())
            .unwrap_or_else(|e| panic!("{}: {e}", case["name"]));
        assert_eq!(canonical(&node), text(&case, "canonical"), "{}", case["name"]);
        let again = parse_strict(text(&case, "canonical").as_bytes()).expect("canonical is JSON");
        assert_eq!(canonical(&again), text(&case, "canonical"), "{} is stable", case["name"]);
        assert!(node.is_strict(), "{}", case["name"]);
    }
}

#[test]
fn signatures_are_the_ones_of_the_second_implementation() {
    let mut seen = BTreeSet::new();
    let mut forms = BTreeSet::new();
    for case in cases("signature.json") {
        let form = canonical(&parse_strict(text(&case, "input").as_bytes()).expect("vector JSON"));
        assert_eq!(form, text(&case, "canonical"), "{}", case["name"]);
        let session = text(&case, "session_id").parse().expect("a uuid");
        let step = u32::try_from(case["step_index"].as_u64().expect("a step")).expect("a u32");
        let signature = call_signature(session, step, text(&case, "tool_name"), &form);
        assert_eq!(signature.to_string(), text(&case, "signature"), "{}", case["name"]);
        seen.insert(signature);
        forms.insert((session, step, text(&case, "tool_name").to_owned(), form));
    }
    assert_eq!(seen.len(), forms.len(), "different calls have different signatures");
}

#[test]
fn refused_texts_name_their_reason_and_path() {
    let mut reasons = BTreeSet::new();
    for case in cases("refused.json") {
        let input = match case["input_hex"].as_str() {
            Some(hex) => unhex(hex),
            None => text(&case, "input").as_bytes().to_vec(),
        };
        let error = parse_strict(&input).expect_err(text(&case, "name"));
        let found = (error.kind.as_str(), error.path.as_str());
        assert_eq!(found, (text(&case, "reason"), text(&case, "path")), "{}", case["name"]);
        reasons.insert(error.kind.as_str());
        // What the world sent is kept, unless it is no JSON at all.
        let is_meaning = matches!(
            error.kind,
            JsonErrorKind::DuplicateKey
                | JsonErrorKind::LoneSurrogate
                | JsonErrorKind::IntegerOutOfRange
                | JsonErrorKind::NumberOverflow
        );
        let lossless = parse_lossless(&input);
        assert_eq!(lossless.is_ok(), is_meaning, "{}", case["name"]);
        if let Ok(node) = lossless {
            assert!(!node.is_strict(), "{}", case["name"]);
            let exact = node.to_text_exact();
            let again = parse_lossless(exact.as_bytes()).expect("exact text is JSON");
            assert_eq!(again, node, "{}", case["name"]);
        }
    }
    assert_eq!(reasons.len(), 11, "every reason has a vector: {reasons:?}");
}

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digit).collect()
}

#[test]
fn descriptors_render_like_the_second_implementation() {
    for case in cases("template.json") {
        let name = text(&case, "name");
        let parse = |field| parse_strict(text(&case, field).as_bytes()).expect("vector JSON");
        let result = case["result"]
            .as_str()
            .map(|result| parse_lossless(result.as_bytes()).expect("vector JSON"));
        let rendered = match render_descriptor(&parse("template"), &parse("args")) {
            Ok(rendered) => rendered,
            Err(error) => {
                assert_eq!(shown(&error), text(&case, "error"), "{name}");
                continue;
            }
        };
        assert_eq!(rendered.args.to_text_exact(), text(&case, "rendered"), "{name}");
        let expected = parse_strict(case["pending"].to_string().as_bytes()).expect("vector JSON");
        assert_eq!(canonical(&pending_to_node(&rendered.pending)), canonical(&expected), "{name}");
        let read = pending_from_node(&pending_to_node(&rendered.pending));
        assert_eq!(read, Some(rendered.pending.clone()), "{name}");
        match complete(&rendered.args, &rendered.pending, result.as_ref(), false) {
            Ok(node) => assert_eq!(node.to_text_exact(), text(&case, "completed"), "{name}"),
            Err(error) => {
                assert_eq!(shown(&error), text(&case, "error"), "{name}");
                assert!(error.is_missing_result(), "{name}");
                null_stands_for_the_missing(&rendered.args, &rendered.pending, result.as_ref());
            }
        }
    }
}

fn null_stands_for_the_missing(args: &Node, pending: &Pending, result: Option<&Node>) {
    let completed = complete(args, pending, result, true).expect("null stands in");
    assert_eq!(completed.to_text_exact(), r#"{"a":null}"#);
}

fn shown(error: &RenderError) -> String {
    match error {
        RenderError::MissingArg { placeholder } => format!("missing_arg {placeholder}"),
        RenderError::MissingResult { placeholder, .. } => format!("missing_result {placeholder}"),
        RenderError::Template(undolog_core::template::TemplateError::Unknown { name }) => {
            format!("unknown_placeholder {{{name}}}")
        }
        RenderError::Template(undolog_core::template::TemplateError::Shape { .. }) => {
            "stray_brace".to_owned()
        }
        other => format!("{other:?}"),
    }
}
