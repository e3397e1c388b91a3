//! How much a rendering may grow to. A placeholder of a few bytes can stand for megabytes, and as
//! often as a template holds it.

use std::cell::Cell;

use super::RenderError;
use crate::json::Node;
use crate::limits::RENDERED_BYTES_MAX;

/// What the values of one rendering may still add.
#[derive(Debug)]
pub(crate) struct Budget(Cell<usize>);

impl Budget {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(RENDERED_BYTES_MAX))
    }

    /// Takes what a value adds, before it is copied.
    pub(crate) fn take(
        &self,
        node: &Node,
        placeholder: impl FnOnce() -> String,
    ) -> Result<(), RenderError> {
        match left_after(node, self.0.get()) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(RenderError::TooLarge { placeholder: placeholder() }),
        }
    }
}

/// What is left when a value was taken; it is looked at no further than that.
fn left_after(node: &Node, left: usize) -> Option<usize> {
    match node {
        Node::Null | Node::Bool(_) => left.checked_sub(4),
        Node::Number(number) => left.checked_sub(number.as_text().len()),
        Node::String(text) => left.checked_sub(printed_len(text.as_str()) + 2),
        Node::Array(items) => {
            items.iter().try_fold(left.checked_sub(2)?, |left, item| left_after(item, left))
        }
        Node::Object(members) => {
            members.iter().try_fold(left.checked_sub(2)?, |left, (key, value)| {
                left_after(value, left.checked_sub(printed_len(key.as_str()) + 4)?)
            })
        }
    }
}

/// Bytes of a text in JSON: what is escaped grows up to six times.
fn printed_len(text: &str) -> usize {
    let printed = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(printed).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse_strict;

    #[test]
    fn a_template_repeats_no_value_without_end() {
        use crate::template::{complete, render_descriptor};
        let args = parse_strict(format!(r#"{{"n":"{}"}}"#, "x".repeat(1 << 20)).as_bytes());
        let args = args.expect("JSON");
        let template = |placeholder: &str, times: usize| {
            let text = format!(r#"{{"v":"{}"}}"#, placeholder.repeat(times));
            parse_strict(text.as_bytes()).expect("JSON")
        };
        render_descriptor(&template("{n}", 15), &args).expect("it fits");
        for text in ["{n}", "{args}", "a{n}"] {
            let refused = render_descriptor(&template(text, 100_000), &args);
            assert!(matches!(refused, Err(RenderError::TooLarge { .. })), "{text}");
        }
        let waits = render_descriptor(&template("{result.n}", 100_000), &args).expect("waits");
        let refused = complete(&waits.args, &waits.pending, Some(&args), false);
        assert!(matches!(refused, Err(RenderError::TooLarge { .. })));
    }

    #[test]
    fn a_value_costs_about_its_text() {
        let escaped = format!("\"{}\"", "\\u0001\\n\\\"".repeat(50));
        for text in [r#"{"key":[1,22,"three",null,true]}"#, "\"\"", "[]", "12.50", escaped.as_str()]
        {
            let node = parse_strict(text.as_bytes()).expect("JSON");
            let cost = RENDERED_BYTES_MAX - left_after(&node, RENDERED_BYTES_MAX).expect("room");
            assert!(cost.abs_diff(text.len()) <= text.len() / 2, "{cost} for {text}");
            assert!(left_after(&node, cost).is_some());
            assert_eq!(left_after(&node, cost.saturating_sub(1)).is_some(), cost == 0);
        }
    }
}
