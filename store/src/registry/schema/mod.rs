//! JSON Schemas of tools and compensations: compiled once, and harmless to run.
//!
//! Schemas come from outside, so they must not make this process call out, recurse without end or
//! work without end. What a document may hold is decided before it is compiled, and how much work
//! a value is before it is checked. Patterns are matched in linear time.

mod graph;
mod work;

use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::apart;
use graph::Graph;

/// A schema's text: room for a large generated one, and a bound for what is compiled and kept.
pub(super) const SCHEMA_BYTES_MAX: usize = 256 * 1024;

/// Memory of one compiled pattern, and of its search.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Steps of back-tracking of one pattern of a schema that was stored before only linear-time
/// patterns were taken.
const BACKTRACK_MAX: usize = 10_000;

/// Evaluations that one check may take: well under a second.
const WORK_MAX: u64 = 2_000_000;
/// A check this small and flat is made where it is asked for.
const SMALL_WORK: u64 = 2_000;
const SMALL_DEPTH: u64 = 64;
/// A document this small needs no stack of its own to be taken down.
const SMALL_NODES: usize = 128;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Schema {
    /// `None` only while this is taken down.
    validator: Option<Validator>,
    graph: Graph,
    /// One number for each compiled schema of this process.
    id: u64,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl Schema {
    fn new(validator: Validator, graph: Graph) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        Self { validator: Some(validator), graph, id }
    }

    /// Tells this schema from every other one that this process compiled.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Compiles a JSON Schema that somebody wants to register.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        let graph = Graph::of(schema)?;
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(schema)
            .map_err(|error| format!("not a valid JSON Schema at {}", place(&error)))?;
        Ok(Self::new(validator, graph))
    }

    /// Compiles a schema that is registered. Patterns with look-around may stand in it, since they
    /// were taken once.
    pub(super) fn compile_stored(schema: &Value) -> Result<Self, String> {
        Self::compile(schema).or_else(|why| {
            let mut graph = Graph::of(schema)?;
            graph.backtracks = true;
            let patterns = PatternOptions::fancy_regex()
                .backtrack_limit(BACKTRACK_MAX)
                .size_limit(PATTERN_BYTES_MAX)
                .dfa_size_limit(PATTERN_BYTES_MAX);
            let validator = jsonschema::options().with_pattern_options(patterns).build(schema);
            Ok(Self::new(validator.map_err(|_| why)?, graph))
        })
    }

    /// Checks a value. The error names the place and the broken rule, never a value.
    fn check(&self, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.validator else { return Ok(()) };
        validator.validate(value).map_err(|error| {
            let path = error.schema_path().as_str();
            let rule = path.rsplit('/').next().unwrap_or_default();
            format!("{} breaks the rule `{rule}` of the schema", place(&error))
        })
    }

    /// Checks a value if that is little work; `None`: it is not.
    pub(super) fn check_small(&self, value: &Value) -> Option<Result<(), String>> {
        let work = self.graph.work(value, SMALL_WORK)?;
        (work.depth <= SMALL_DEPTH).then(|| self.check(value))
    }

    /// Checks a value if that is work that may be done at all.
    pub(super) fn check_large(&self, value: &Value) -> Result<(), String> {
        if self.graph.work(value, WORK_MAX).is_none() && crate::guard!("schema.work") {
            return Err("checking it against the schema takes too much work".to_owned());
        }
        self.check(value)
    }

    /// Memory of what is kept, about.
    pub(super) fn bytes(&self) -> usize {
        self.graph.nodes.len() * 1_024 + self.graph.patterns * PATTERN_BYTES_MAX / 4
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // The tree of validators is taken down by recursion.
        if self.graph.nodes.len() > SMALL_NODES
            && let Some(large) = self.validator.take()
        {
            apart::drop_on_large_stack(large);
        }
    }
}

fn place(error: &jsonschema::ValidationError<'_>) -> String {
    let path = error.instance_path().as_str();
    if path.is_empty() { "the top".to_owned() } else { path.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

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
        refused(json!({"pattern": "^[a-z]{1000}{1000}$"}));
    }

    #[test]
    fn look_around_is_taken_in_stored_schemas_only() {
        let schema = json!({"pattern": "^(?!-)[a-z-]+$"});
        refused(schema.clone());
        let stored = Schema::compile_stored(&schema).unwrap();
        stored.check(&json!("a-b")).unwrap();
        stored.check(&json!("-b")).unwrap_err();
        assert_eq!(stored.check_small(&json!("a-b")), Some(Ok(())));
        Schema::compile_stored(&json!({"pattern": "("})).unwrap_err();
    }

    #[test]
    fn chains_of_references_have_a_length() {
        let chain = |links: usize, link: fn(Value) -> Value| {
            let mut defs = Map::new();
            for n in 0..links {
                let next = json!({"$ref": format!("#/$defs/{}", n + 1)});
                defs.insert(n.to_string(), link(next));
            }
            defs.insert(links.to_string(), json!({"type": "integer"}));
            json!({"$ref": "#/$defs/0", "$defs": defs})
        };
        let in_place: fn(Value) -> Value = |next| next;
        Schema::compile(&chain(60, in_place)).unwrap().check(&json!(1)).unwrap();
        for links in [64, 100, 1_500, 10_000] {
            refused(chain(links, in_place));
            refused(chain(links, |next| json!({"allOf": [next]})));
        }
        let of_a_part: fn(Value) -> Value = |next| json!({"properties": {"x": next}});
        Schema::compile(&chain(100, of_a_part)).unwrap();
        for links in [600, 1_500, 10_000] {
            refused(chain(links, of_a_part));
        }
    }

    #[test]
    fn a_part_has_no_base_of_its_own() {
        Schema::compile(&json!({"$id": "https://x.example/a", "type": "object"})).unwrap();
        for part in ["$id", "$anchor", "$dynamicAnchor", "$schema"] {
            let schema = json!({"properties": {"x": {part: "https://x.example/b"}}});
            assert!(refused(schema).contains(part));
        }
    }
}
