//! A JSON Schema as a graph: which schemas apply to the same value, and which to its parts.
//!
//! Two things are decided by it: whether a schema may be compiled at all, and how much work a
//! value would be ([`super::work`]).

use std::collections::HashMap;

use serde_json::{Map, Value};

/// Schemas of one document; each costs memory, and stack while it is compiled.
const NODES_MAX: usize = 4_000;
/// Patterns of one document; each is a machine of its own.
const PATTERNS_MAX: usize = 100;
/// References of one document.
const REFERENCES_MAX: usize = 512;
/// Schemas that apply to one value by way of each other.
const HEIGHT_MAX: u32 = 64;
/// How often one value may be visited by the schemas that apply to it in place.
const VISITS_MAX: u64 = 10_000;

/// Keywords whose one schema applies to the same value.
const IN_PLACE: &[&str] = &["not", "if", "then", "else"];
/// Keywords whose list of schemas applies to the same value.
const IN_PLACE_LISTS: &[&str] = &["allOf", "anyOf", "oneOf"];
/// Keywords whose named schemas apply to the same value.
const IN_PLACE_MAPS: &[&str] = &["dependentSchemas", "dependencies"];
/// Keywords with one schema for members of an object that are not named.
const MEMBERS: &[&str] = &["additionalProperties", "unevaluatedProperties"];
/// Keywords with one schema for items of an array.
const ITEMS: &[&str] = &["items", "additionalItems", "unevaluatedItems", "contains"];
/// Keywords that make a validator look through the schemas in place a second time.
const REPEATS: &[&str] = &["unevaluatedProperties", "unevaluatedItems"];
/// Keywords that would give a part of the document another base or another meaning.
const TOP_ONLY: &[&str] = &["$id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor"];

/// One schema of the document.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Work of one evaluation, whatever the value.
    pub(super) weight: u64,
    /// Bytes of the `pattern`.
    pub(super) pattern_bytes: u64,
    /// Bytes of all keys of `patternProperties`, each of which is tried on each name.
    pub(super) key_pattern_bytes: u64,
    /// The text is looked at as a whole.
    pub(super) has_format: bool,
    /// Items are compared with each other.
    pub(super) is_unique: bool,
    /// How often the schemas in place are evaluated with this one.
    pub(super) repeats: u64,
    /// Schemas of the same value.
    pub(super) in_place: Vec<usize>,
    /// Schemas of named members.
    pub(super) members: HashMap<String, usize>,
    /// Schemas of members that are not named.
    pub(super) other_members: Vec<usize>,
    /// Schemas of members by a pattern of their name.
    pub(super) pattern_members: Vec<usize>,
    /// Schemas of the names.
    pub(super) names: Vec<usize>,
    /// Schemas of the first items, each of its own place.
    pub(super) places: Vec<usize>,
    /// Schemas of items.
    pub(super) items: Vec<usize>,
    /// Place in an order in which a schema comes before those in place below it.
    pub(super) rank: usize,
    /// The longest chain of schemas in place from here, this one included.
    pub(super) height: u32,
    path: String,
}

/// All schemas of a document; the first one is the document itself.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    /// How many patterns there are.
    pub(super) patterns: usize,
    /// Patterns are matched by an engine that can go back.
    pub(super) backtracks: bool,
}

impl Graph {
    /// Reads a document.
    ///
    /// # Errors
    /// A reference leads outside or back to where it began, a keyword is not supported, or the
    /// document is larger, deeper or more entangled than is compiled.
    pub(super) fn of(root: &Value) -> Result<Self, String> {
        let mut reader = Reader {
            root,
            found: HashMap::new(),
            nodes: Vec::new(),
            open: Vec::new(),
            patterns: 0,
        };
        reader.node(root, String::new())?;
        let mut references = 0;
        while let Some((schema, index)) = reader.open.pop() {
            references += reader.read(schema, index)?;
            if references > REFERENCES_MAX {
                return Err(format!("the schema has more than {REFERENCES_MAX} references"));
            }
        }
        let patterns = reader.patterns;
        if patterns > PATTERNS_MAX {
            return Err(format!("the schema has more than {PATTERNS_MAX} patterns"));
        }
        let mut graph = Self { nodes: reader.nodes, patterns, backtracks: false };
        graph.order()?;
        Ok(graph)
    }

    /// Gives each schema its rank and height, and refuses circles in place.
    fn order(&mut self) -> Result<(), String> {
        let mut done = Vec::with_capacity(self.nodes.len());
        let mut state = vec![Visit::New; self.nodes.len()];
        for start in 0..self.nodes.len() {
            let mut stack = vec![(start, 0_usize)];
            while let Some((index, child)) = stack.pop() {
                if child == 0 {
                    match state[index] {
                        Visit::Done => continue,
                        Visit::Open => return Err(self.circle(index)),
                        Visit::New => state[index] = Visit::Open,
                    }
                }
                let Some(next) = self.nodes[index].in_place.get(child).copied() else {
                    state[index] = Visit::Done;
                    done.push(index);
                    continue;
                };
                stack.push((index, child + 1));
                match state[next] {
                    Visit::Done => {}
                    Visit::Open => return Err(self.circle(next)),
                    Visit::New => stack.push((next, 0)),
                }
            }
        }
        self.measure(&done)
    }

    /// `done` holds a schema after those in place below it.
    fn measure(&mut self, done: &[usize]) -> Result<(), String> {
        let mut visits = vec![0_u64; self.nodes.len()];
        for (place, index) in done.iter().copied().enumerate() {
            let node = &self.nodes[index];
            let below = node.in_place.iter();
            let height = 1 + below.clone().map(|i| self.nodes[*i].height).max().unwrap_or(0);
            let sum = below.fold(0_u64, |sum, i| sum.saturating_add(visits[*i]));
            visits[index] = sum.saturating_mul(node.repeats).saturating_add(1);
            let path = shown(&node.path);
            if height > HEIGHT_MAX {
                return Err(format!("{path}: more than {HEIGHT_MAX} schemas apply one by another"));
            }
            if visits[index] > VISITS_MAX {
                return Err(format!("{path}: more than {VISITS_MAX} schemas apply to one value"));
            }
            let rank = done.len() - place;
            let node = &mut self.nodes[index];
            (node.height, node.rank) = (height, rank);
        }
        Ok(())
    }

    fn circle(&self, index: usize) -> String {
        format!("{}: a reference leads back to itself", shown(&self.nodes[index].path))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Visit {
    New,
    Open,
    Done,
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "the top" } else { path }
}

struct Reader<'a> {
    root: &'a Value,
    /// Nodes by the address of their schema.
    found: HashMap<usize, usize>,
    nodes: Vec<Node>,
    /// Schemas that were found and not read yet.
    open: Vec<(&'a Value, usize)>,
    patterns: usize,
}

impl<'a> Reader<'a> {
    /// The node of a schema, which is read later if it is new.
    fn node(&mut self, schema: &'a Value, path: String) -> Result<usize, String> {
        let id = std::ptr::from_ref(schema).addr();
        if let Some(index) = self.found.get(&id) {
            return Ok(*index);
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(format!("the schema has more than {NODES_MAX} parts"));
        }
        let index = self.nodes.len();
        self.nodes.push(Node { weight: 1, repeats: 1, path, ..Node::default() });
        self.found.insert(id, index);
        self.open.push((schema, index));
        Ok(index)
    }

    /// Reads one schema; answers how many references it holds.
    fn read(&mut self, schema: &'a Value, index: usize) -> Result<usize, String> {
        let Value::Object(keywords) = schema else { return Ok(0) };
        let path = self.nodes[index].path.clone();
        check_keywords(keywords, index == 0, &path)?;
        let mut node = Node { path: String::new(), ..std::mem::take(&mut self.nodes[index]) };
        self.patterns += weigh(keywords, &mut node);
        let mut references = 0;
        if let Some(Value::String(reference)) = keywords.get("$ref") {
            let target = self.target(reference).ok_or_else(|| {
                format!("{path}/$ref must point into the schema itself, as #/$defs/name does")
            })?;
            node.in_place.push(self.node(target, reference.clone())?);
            references = 1;
        }
        for name in IN_PLACE {
            node.in_place.extend(self.one(keywords, name, &path)?);
        }
        for name in IN_PLACE_LISTS {
            node.in_place.extend(self.list(keywords, name, &path)?);
        }
        for name in IN_PLACE_MAPS {
            node.in_place.extend(self.map(keywords, name, &path)?.into_values());
        }
        for name in MEMBERS {
            node.other_members.extend(self.one(keywords, name, &path)?);
        }
        for name in ITEMS {
            node.items.extend(self.one(keywords, name, &path)?);
        }
        for name in ["prefixItems", "items"] {
            node.places.extend(self.list(keywords, name, &path)?);
        }
        node.members = self.map(keywords, "properties", &path)?;
        node.pattern_members =
            self.map(keywords, "patternProperties", &path)?.into_values().collect();
        node.names.extend(self.one(keywords, "propertyNames", &path)?);
        // Referred to from elsewhere, or not at all; what they hold must be right all the same.
        for name in ["$defs", "definitions"] {
            self.map(keywords, name, &path)?;
        }
        self.one(keywords, "contentSchema", &path)?;
        node.path = path;
        self.nodes[index] = node;
        Ok(references)
    }

    fn one(
        &mut self,
        keywords: &'a Map<String, Value>,
        name: &str,
        path: &str,
    ) -> Result<Option<usize>, String> {
        match keywords.get(name) {
            None | Some(Value::Array(_)) => Ok(None),
            Some(schema) => self.node(schema, format!("{path}/{name}")).map(Some),
        }
    }

    fn list(
        &mut self,
        keywords: &'a Map<String, Value>,
        name: &str,
        path: &str,
    ) -> Result<Vec<usize>, String> {
        let Some(Value::Array(schemas)) = keywords.get(name) else { return Ok(Vec::new()) };
        let all = schemas.iter().enumerate();
        all.map(|(i, schema)| self.node(schema, format!("{path}/{name}/{i}"))).collect()
    }

    fn map(
        &mut self,
        keywords: &'a Map<String, Value>,
        name: &str,
        path: &str,
    ) -> Result<HashMap<String, usize>, String> {
        let Some(Value::Object(schemas)) = keywords.get(name) else { return Ok(HashMap::new()) };
        let all = schemas.iter();
        all.map(|(key, schema)| {
            Ok((key.clone(), self.node(schema, format!("{path}/{name}/{key}"))?))
        })
        .collect()
    }

    fn target(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(&percent_decoded(pointer))
    }
}

fn check_keywords(keywords: &Map<String, Value>, is_top: bool, path: &str) -> Result<(), String> {
    for name in ["$dynamicRef", "$recursiveRef"] {
        if keywords.contains_key(name) {
            return Err(format!("{path}/{name} is not supported; use $ref"));
        }
    }
    for name in TOP_ONLY {
        let is_base = matches!(*name, "$id" | "$schema");
        if keywords.get(*name).is_some_and(Value::is_string) && !(is_top && is_base) {
            return Err(format!("{path}/{name} is not supported below the top"));
        }
    }
    // Until draft 4, `id` was what `$id` is.
    let is_old = |text: &str| text.contains("draft-04") || text.contains("draft-03");
    if keywords.get("$schema").and_then(Value::as_str).is_some_and(is_old) {
        return Err("drafts before draft 6 are not supported".to_owned());
    }
    Ok(())
}

/// What evaluating a schema costs; answers how many patterns it has.
fn weigh(keywords: &Map<String, Value>, node: &mut Node) -> usize {
    let entries = |name: &str| keywords.get(name).map_or(0, size);
    node.weight += entries("enum") + entries("const") + entries("required");
    node.weight += entries("dependentRequired");
    if let Some(Value::Object(members)) = keywords.get("properties") {
        node.weight += members.len() as u64;
    }
    let text = |name: &str| keywords.get(name).and_then(Value::as_str);
    node.pattern_bytes = text("pattern").map_or(0, |pattern| pattern.len() as u64);
    let mut patterns = usize::from(text("pattern").is_some());
    if let Some(Value::Object(keys)) = keywords.get("patternProperties") {
        node.key_pattern_bytes = keys.keys().map(|key| key.len() as u64 + 1).sum();
        patterns += keys.len();
    }
    node.has_format = text("format").is_some();
    node.is_unique = keywords.get("uniqueItems") == Some(&Value::Bool(true));
    if REPEATS.iter().any(|name| keywords.contains_key(*name)) {
        node.repeats = 2;
    }
    patterns
}

/// How many values a value holds, itself included.
pub(super) fn size(value: &Value) -> u64 {
    let (mut count, mut open) = (0_u64, vec![value]);
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    count
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
