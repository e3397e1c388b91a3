//! How much work it is to check a value against a schema, before it is done.
//!
//! Schemas that apply to the same value multiply with those of its parts, so a small schema and a
//! small value can be work for hours. The estimate counts every schema that can apply to every
//! part, as often as a validator that stops at nothing would evaluate it. It ends with its budget,
//! so it costs no more than what it allows.

use std::{collections::BTreeMap, rc::Rc};

use serde_json::Value;

use super::graph::{Graph, Node, size};

/// One match by an engine that can go back, up to its limit of steps.
const BACKTRACKING_WORK: u64 = 1_000;

/// What a check will take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Work {
    /// Evaluations, about.
    pub(super) evaluations: u64,
    /// Schemas that are evaluated inside each other at most.
    pub(super) depth: u64,
}

/// Schemas of a value, each with how often it is evaluated.
type Active = BTreeMap<usize, u64>;

/// A value whose schemas are known.
struct Open<'v> {
    value: &'v Value,
    schemas: Rc<Active>,
    depth: u64,
}

impl Graph {
    /// The work of checking this value; `None` when it is more than `most` evaluations.
    pub(super) fn work(&self, value: &Value, most: u64) -> Option<Work> {
        let mut meter = Meter { graph: self, left: most, depth: 0 };
        let mut open = vec![Open { value, schemas: Rc::new(Active::from([(0, 1)])), depth: 0 }];
        while let Some(next) = open.pop() {
            meter.visit(&next, &mut open)?;
        }
        Some(Work { evaluations: most - meter.left, depth: meter.depth })
    }
}

struct Meter<'g> {
    graph: &'g Graph,
    left: u64,
    depth: u64,
}

impl<'g> Meter<'g> {
    fn charge(&mut self, work: u64) -> Option<()> {
        self.left = self.left.checked_sub(work)?;
        Some(())
    }

    fn visit<'v>(&mut self, at: &Open<'v>, open: &mut Vec<Open<'v>>) -> Option<()> {
        let schemas = self.in_place(at.value, &at.schemas)?;
        let highest = at.schemas.keys().map(|index| self.graph.nodes[*index].height).max();
        let depth = at.depth + u64::from(highest.unwrap_or(0));
        self.depth = self.depth.max(depth);
        match at.value {
            Value::Array(items) => self.items(items, &schemas, depth, open),
            Value::Object(members) => {
                self.charge((members.len() as u64).saturating_mul(schemas.len() as u64))?;
                for (name, member) in members {
                    self.member(name, member, &schemas, depth, open)?;
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    /// All schemas that apply to this value, in place of each other, charged.
    fn in_place(&mut self, value: &Value, begun: &Active) -> Option<Vec<(&'g Node, u64)>> {
        // By rank: whatever leads to a schema comes before it, so each is met once.
        let graph = self.graph;
        let ranked = |(index, times): (&usize, &u64)| (graph.nodes[*index].rank, (*index, *times));
        let mut waiting: BTreeMap<usize, (usize, u64)> =
            begun.iter().map(ranked).map(|(rank, entry)| (usize::MAX - rank, entry)).collect();
        let mut all = Vec::new();
        while let Some((_, (index, times))) = waiting.pop_first() {
            let node = &graph.nodes[index];
            self.charge(times.saturating_mul(weight(node, value, graph.backtracks)))?;
            for child in &node.in_place {
                let key = usize::MAX - graph.nodes[*child].rank;
                let entry = waiting.entry(key).or_insert((*child, 0));
                entry.1 = entry.1.saturating_add(times.saturating_mul(node.repeats));
            }
            all.push((node, times));
        }
        Some(all)
    }

    fn items<'v>(
        &mut self,
        items: &'v [Value],
        schemas: &[(&'g Node, u64)],
        depth: u64,
        open: &mut Vec<Open<'v>>,
    ) -> Option<()> {
        let places = schemas.iter().map(|(node, _)| node.places.len()).max().unwrap_or(0);
        let of = |place: usize| {
            let mut active = Active::new();
            for (node, times) in schemas {
                add(&mut active, node.places.get(place), *times);
                add(&mut active, &node.items, *times);
            }
            Rc::new(active)
        };
        let rest = of(places);
        for (place, value) in items.iter().enumerate() {
            let schemas = if place < places {
                self.charge(schemas.len() as u64)?;
                of(place)
            } else {
                Rc::clone(&rest)
            };
            self.charge(1)?;
            if !schemas.is_empty() {
                open.push(Open { value, schemas, depth });
            }
        }
        Some(())
    }

    fn member<'v>(
        &mut self,
        name: &str,
        value: &'v Value,
        schemas: &[(&'g Node, u64)],
        depth: u64,
        open: &mut Vec<Open<'v>>,
    ) -> Option<()> {
        let (mut active, mut names) = (Active::new(), Active::new());
        for (node, times) in schemas {
            match node.members.get(name) {
                Some(index) => add(&mut active, [index], *times),
                None => add(&mut active, &node.other_members, *times),
            }
            add(&mut active, &node.pattern_members, *times);
            add(&mut names, &node.names, *times);
            let backtracks = self.graph.backtracks;
            let matching = matching(node.key_pattern_bytes, name.len(), backtracks);
            self.charge(times.saturating_mul(matching))?;
        }
        if !names.is_empty() {
            let name = Value::String(name.to_owned());
            self.in_place(&name, &names)?;
        }
        if !active.is_empty() {
            open.push(Open { value, schemas: Rc::new(active), depth });
        }
        Some(())
    }
}

fn add<'a>(active: &mut Active, indices: impl IntoIterator<Item = &'a usize>, times: u64) {
    for index in indices {
        let entry = active.entry(*index).or_insert(0);
        *entry = entry.saturating_add(times);
    }
}

/// One evaluation of a schema on a value, its parts and the schemas in place left out.
fn weight(node: &Node, value: &Value, backtracks: bool) -> u64 {
    let of_value = match value {
        Value::String(text) => {
            let format = if node.has_format { 8 + text.len() as u64 / 8 } else { 0 };
            text.len() as u64 / 256 + format + matching(node.pattern_bytes, text.len(), backtracks)
        }
        Value::Array(_) if node.is_unique => size(value).saturating_mul(4),
        _ => 0,
    };
    node.weight.saturating_add(of_value)
}

/// A match: by the length of the text, and by that of the pattern where both are long.
fn matching(pattern_bytes: u64, text_bytes: usize, backtracks: bool) -> u64 {
    if pattern_bytes == 0 {
        return 0;
    }
    let text = text_bytes as u64;
    let going_back = if backtracks { BACKTRACKING_WORK } else { 0 };
    1 + going_back + text.saturating_mul(4 + pattern_bytes / 8) / 64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const WORK_MAX: u64 = 2_000_000;

    fn work(schema: &Value, value: &Value) -> Option<u64> {
        Graph::of(schema).unwrap().work(value, WORK_MAX).map(|work| work.evaluations)
    }

    #[test]
    fn an_ordinary_call_is_little_work() {
        let schema = json!({"type": "object", "required": ["to"], "properties": {
            "to": {"type": "string", "pattern": "^[a-z@.]+$"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {
                "sku": {"type": "string"}, "count": {"type": "integer"}}}}}});
        let line = json!({"sku": "a-1", "count": 3});
        let value = json!({"to": "a@b.example", "lines": vec![line; 100]});
        let work = work(&schema, &value).unwrap();
        assert!((100..5_000).contains(&work), "{work}");
    }

    #[test]
    fn schemas_multiply_with_those_of_the_parts() {
        let many = |target: &str| vec![json!({"$ref": target}); 48];
        let schema = json!({"properties": {"x": {"items": {"allOf": many("#/$defs/a")}}},
            "$defs": {"a": {"allOf": many("#/$defs/b")}, "b": {"pattern": "^(a|a)*$"}}});
        let of = |n: usize| work(&schema, &json!({"x": vec!["aaaaaaaaaaaaaa"; n]}));
        let one = of(1).unwrap();
        assert!(one > 2_304, "{one}");
        assert_eq!(of(2).unwrap() - one, of(3).unwrap() - of(2).unwrap());
        assert_eq!(of(1_000), None);
        let nested = json!({"items": {"allOf": many("#/$defs/a")}, "$defs": {
            "a": {"items": {"allOf": many("#/$defs/b")}},
            "b": {"items": {"allOf": many("#/$defs/c")}},
            "c": {"items": {"allOf": many("#/$defs/d")}}, "d": {"type": "null"}}});
        assert_eq!(work(&nested, &json!([[[[1]]]])), None, "48^4 evaluations of one number");
    }

    #[test]
    fn a_recursive_schema_costs_what_its_value_unfolds() {
        let both = json!([{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/n"}]);
        let schema = json!({"$ref": "#/$defs/n", "$defs": {"n": {"items": {"allOf": both}}}});
        let nested = |depth: usize| (0..depth).fold(json!(1), |value, _| json!([value]));
        assert!(work(&schema, &nested(8)).unwrap() > 256);
        assert_eq!(work(&schema, &nested(60)), None);
    }

    #[test]
    fn what_no_schema_looks_at_costs_nothing() {
        let schema = json!({"properties": {"a": {"type": "integer"}}});
        let large: Vec<u32> = (0..1_000_000).collect();
        assert!(work(&schema, &json!({"b": large})).unwrap() < 10);
    }

    #[test]
    fn the_depth_is_that_of_the_chains() {
        let schema = json!({"allOf": [{"anyOf": [{"items": {"not": {"type": "null"}}}]}]});
        let work = Graph::of(&schema).unwrap().work(&json!([1]), WORK_MAX).unwrap();
        assert_eq!(work.depth, 5);
    }
}
