//! The canonical form: the bytes that a signature is made over.

use super::Node;

/// The canonical text of a value: keys sorted by code point, recursively; no white space; strings
/// escaped as `serde_json` does; numbers by this crate's frozen printer.
///
/// Every value has one. For a value that `parse_strict` refuses (a duplicate key, a lone surrogate,
/// a number out of range) the offending part stands as it was written, so that equal texts mean
/// equal values; no signature is ever made of it.
#[must_use]
pub fn canonical(node: &Node) -> String {
    let mut out = String::new();
    write(node, &mut out);
    out
}

fn write(node: &Node, out: &mut String) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(true) => out.push_str("true"),
        Node::Bool(false) => out.push_str("false"),
        Node::Number(number) => number.write_canonical(out),
        Node::String(text) => text.write_quoted(out),
        Node::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Node::Object(members) => {
            // UTF-8 sorts by code point. The sort is stable: duplicates keep their order.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
            out.push('{');
            for (i, (key, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                key.write_quoted(out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// Whether two results are the same outcome: equal in canonical form when both are values that a
/// signature would accept, else equal as they were written.
#[must_use]
pub fn canonical_value_eq(a: &Node, b: &Node) -> bool {
    if a.is_strict() && b.is_strict() {
        canonical(a) == canonical(b)
    } else {
        a.to_text_exact() == b.to_text_exact()
    }
}
