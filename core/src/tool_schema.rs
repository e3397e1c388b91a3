//! The documented `tool_schema`: the MCP tool object. A bare JSON Schema is wrapped as one.

use crate::json::{Node, Text};

/// The MCP tool object for a schema: kept when it is one already (it has an `inputSchema`), else
/// the bare schema becomes its `inputSchema`. Nothing, or null, accepts every object.
#[must_use]
pub fn wrap(tool_name: &str, schema: &Node) -> Node {
    if schema.member("inputSchema").is_some() {
        return schema.clone();
    }
    let input = match schema {
        Node::Null => Node::Object(vec![(Text::new("type"), Node::string("object"))]),
        bare => bare.clone(),
    };
    Node::Object(vec![
        (Text::new("name"), Node::string(tool_name)),
        (Text::new("inputSchema"), input),
    ])
}

/// The JSON Schema that arguments must fit, from a stored tool object.
#[must_use]
pub fn input_schema(tool: &Node) -> &Node {
    tool.member("inputSchema").unwrap_or(tool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse_strict;

    fn node(text: &str) -> Node {
        parse_strict(text.as_bytes()).expect("test JSON")
    }

    #[test]
    fn a_bare_schema_is_wrapped_and_a_tool_object_is_kept() {
        let bare = node(r#"{"type":"object","required":["a"]}"#);
        let wrapped = wrap("t", &bare);
        assert_eq!(
            wrapped.to_text_exact(),
            r#"{"name":"t","inputSchema":{"type":"object","required":["a"]}}"#
        );
        assert_eq!(input_schema(&wrapped), &bare);
        assert_eq!(wrap("t", &wrapped), wrapped);
        assert_eq!(wrap("t", &Node::Null).get(["inputSchema", "type"]), Some(&node("\"object\"")));
    }
}
