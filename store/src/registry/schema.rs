//! JSON Schemas of tools and compensations: compiled once, and harmless to run.
//!
//! Schemas come from outside, so they must not make this process call out, recurse without end or
//! back-track without end.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};
use undolog_core::{
    json::{from_stored, to_serde},
    tool_schema::input_schema,
};

/// A schema's text: room for a large generated one, and a bound for what is compiled and kept.
pub(super) const SCHEMA_BYTES_MAX: usize = 256 * 1024;

/// How often one place of the arguments may be visited by the schemas that apply to it in place.
const VISITS_MAX: u64 = 10_000;

/// Steps of back-tracking that one `pattern` may take.
const BACKTRACK_MAX: usize = 100_000;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// `None` lets everything pass.
    validator: Option<Validator>,
}

impl Schema {
    /// Lets every value pass.
    pub(crate) fn anything() -> Self {
        Self { validator: None }
    }

    /// Compiles a JSON Schema.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        check_references(schema)?;
        let validator = jsonschema::options()
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_MAX))
            .build(schema)
            .map_err(|error| format!("no valid JSON Schema at {}", place(&error)))?;
        Ok(Self { validator: Some(validator) })
    }

    /// Compiles a stored schema.
    pub(crate) fn of_stored(text: &str) -> Result<Self, String> {
        let schema = from_stored(text, None).map_err(|error| error.to_string())?;
        Self::compile(&to_serde(&schema))
    }

    /// Compiles the input schema of a stored MCP tool object.
    pub(crate) fn of_stored_tool(text: &str) -> Result<Self, String> {
        let tool = from_stored(text, None).map_err(|error| error.to_string())?;
        Self::compile(&to_serde(input_schema(&tool)))
    }

    /// Checks a value. The error names the place and the broken rule, never a value.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.validator else { return Ok(()) };
        validator.validate(value).map_err(|error| {
            let rule = error.schema_path.as_str().rsplit('/').next().unwrap_or_default();
            format!("{} breaks the rule `{rule}` of the schema", place(&error))
        })
    }
}

fn place(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path.as_str();
    if path.is_empty() { "the top".to_owned() } else { path.to_owned() }
}

/// Keywords whose one schema applies to the same value.
const IN_PLACE: &[&str] = &["not", "if", "then", "else"];
/// Keywords whose list of schemas applies to the same value.
const IN_PLACE_LISTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords whose named schemas apply to the same value.
const IN_PLACE_MAPS: &[&str] = &["dependentSchemas", "dependencies"];
/// Keywords with one schema for parts of the value.
const PARTS: &[&str] = &[
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "contentSchema",
];
/// Keywords with a list of schemas for parts of the value.
const PART_LISTS: &[&str] = &["prefixItems", "items"];
/// Keywords with named schemas for parts of the value, or for nothing until referred to.
const PART_MAPS: &[&str] = &["properties", "patternProperties", "$defs", "definitions"];

/// Refuses references that lead outside, and in-place references that lead back to where they
/// began: validating those would never end.
fn check_references(root: &Value) -> Result<(), String> {
    let mut walk = Walk { root, seen: HashMap::new(), parts: vec![(root, String::new())] };
    while let Some((schema, path)) = walk.parts.pop() {
        walk.visits(schema, &path)?;
    }
    Ok(())
}

struct Walk<'a> {
    root: &'a Value,
    /// By address: `None` while a schema's in-place applicators are being followed.
    seen: HashMap<usize, Option<u64>>,
    /// Schemas of parts, which start a place of their own.
    parts: Found<'a>,
}

impl<'a> Walk<'a> {
    /// How many schemas apply in place where this one does.
    fn visits(&mut self, schema: &'a Value, path: &str) -> Result<u64, String> {
        let Value::Object(keywords) = schema else { return Ok(1) };
        let id = std::ptr::from_ref(schema).addr();
        match self.seen.get(&id) {
            Some(Some(visits)) => return Ok(*visits),
            Some(None) => return Err(format!("{path}: a reference leads back to itself")),
            None => {}
        }
        self.seen.insert(id, None);
        let mut visits = 1_u64;
        for (child, child_path) in self.in_place(keywords, path)? {
            visits = visits.saturating_add(self.visits(child, &child_path)?);
        }
        if visits > VISITS_MAX {
            return Err(format!("{path}: more than {VISITS_MAX} schemas apply to one place"));
        }
        self.seen.insert(id, Some(visits));
        // A recursive type comes back here through a part, and ends with the value.
        self.parts.extend(parts(keywords, path));
        Ok(visits)
    }

    fn in_place(
        &self,
        keywords: &'a Map<String, Value>,
        path: &str,
    ) -> Result<Vec<(&'a Value, String)>, String> {
        let mut found = Vec::new();
        for keyword in ["$dynamicRef", "$recursiveRef"] {
            if keywords.contains_key(keyword) {
                return Err(format!("{path}/{keyword} is not supported; use $ref"));
            }
        }
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            let target = self.target(reference).ok_or_else(|| {
                format!("{path}/$ref must point into the schema itself, as #/$defs/name does")
            })?;
            found.push((target, format!("{path}/$ref")));
        }
        collect(keywords, IN_PLACE, path, &mut found);
        collect_lists(keywords, IN_PLACE_LISTS, path, &mut found);
        collect_maps(keywords, IN_PLACE_MAPS, path, &mut found);
        Ok(found)
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(&percent_decoded(pointer))
    }
}

fn parts<'a>(keywords: &'a Map<String, Value>, path: &str) -> Vec<(&'a Value, String)> {
    let mut found = Vec::new();
    collect(keywords, PARTS, path, &mut found);
    collect_lists(keywords, PART_LISTS, path, &mut found);
    collect_maps(keywords, PART_MAPS, path, &mut found);
    found
}

type Found<'a> = Vec<(&'a Value, String)>;

fn collect<'a>(from: &'a Map<String, Value>, names: &[&str], path: &str, found: &mut Found<'a>) {
    for name in names {
        if let Some(schema) = from.get(*name) {
            found.push((schema, format!("{path}/{name}")));
        }
    }
}

fn collect_lists<'a>(
    from: &'a Map<String, Value>,
    names: &[&str],
    path: &str,
    found: &mut Found<'a>,
) {
    for name in names {
        if let Some(Value::Array(schemas)) = from.get(*name) {
            let all = schemas.iter().enumerate();
            found.extend(all.map(|(i, schema)| (schema, format!("{path}/{name}/{i}"))));
        }
    }
}

fn collect_maps<'a>(
    from: &'a Map<String, Value>,
    names: &[&str],
    path: &str,
    found: &mut Found<'a>,
) {
    for name in names {
        if let Some(Value::Object(schemas)) = from.get(*name) {
            found.extend(schemas.iter().map(|(key, s)| (s, format!("{path}/{name}/{key}"))));
        }
    }
}

/// A fragment's percent escapes, as a JSON pointer needs them undone.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = (bytes[i] == b'%').then(|| text.get(i + 1..i + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(schema: Value) -> String {
        Schema::compile(&schema).map(|_| ()).unwrap_err()
    }

    #[test]
    fn an_error_names_the_place_and_never_the_value() {
        let schema = Schema::compile(&json!({
            "type": "object",
            "properties": {"amount": {"type": "integer", "minimum": 1}},
            "required": ["amount"],
        }))
        .unwrap();
        schema.check(&json!({"amount": 3})).unwrap();
        let error = schema.check(&json!({"amount": "hunter2"})).unwrap_err();
        assert_eq!(error, "/amount breaks the rule `type` of the schema");
        let error = schema.check(&json!({})).unwrap_err();
        assert_eq!(error, "the top breaks the rule `required` of the schema");
    }

    #[test]
    fn references_stay_inside_and_end() {
        assert!(refused(json!({"$ref": "#"})).contains("back to itself"));
        assert!(
            refused(json!({"allOf": [{"$ref": "#/$defs/a"}],
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}))
            .contains("back to itself")
        );
        assert!(refused(json!({"$ref": "https://example.com/schema"})).contains("itself"));
        assert!(refused(json!({"properties": {"x": {"$ref": "#/$defs/none"}}})).contains("$ref"));
        assert!(refused(json!({"items": {"$dynamicRef": "#x"}})).contains("$dynamicRef"));
    }

    #[test]
    fn recursive_types_work_and_exponential_ones_are_refused() {
        let tree = Schema::compile(&json!({"$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {"children": {
                "type": "array", "items": {"$ref": "#/$defs/node"}}}}}}))
        .unwrap();
        tree.check(&json!({"children": [{"children": []}]})).unwrap();
        tree.check(&json!({"children": [{"children": [3]}]})).unwrap_err();
        let nested = json!({"allOf": [{"properties": {"x": {"$ref": "#"}}}], "type": "object"});
        Schema::compile(&nested).unwrap().check(&json!({"x": {"x": 1}})).unwrap_err();
        let mut defs = Map::new();
        for n in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"allOf": [next, next]}));
        }
        defs.insert("d40".to_owned(), json!(true));
        assert!(refused(json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("10000"));
    }

    #[test]
    fn names_of_properties_are_no_keywords() {
        let schema = json!({"properties": {"$ref": {"type": "string"}, "const": {"type": "null"}},
            "const": {"$ref": "https://example.com", "const": null}});
        Schema::compile(&schema).unwrap();
    }

    #[test]
    fn a_bad_pattern_or_type_does_not_compile() {
        refused(json!({"type": "nonsense"}));
        refused(json!({"pattern": "("}));
    }
}
