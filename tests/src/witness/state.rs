//! What the service keeps: objects that calls make and undo.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

/// All objects, by kind and id.
pub type Objects = BTreeMap<String, BTreeMap<String, Value>>;

/// An ordinary answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

/// Objects, and the answers that idempotency keys have had.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    made: BTreeMap<String, u64>,
    answered: HashMap<String, Answer>,
}

impl State {
    /// Applies a call; the flag tells whether it changed anything.
    pub(crate) fn apply(&mut self, path: &str, key: Option<&str>, body: &Value) -> (Answer, bool) {
        let remembered = key.map(|key| format!("{path} {key}"));
        if let Some(answer) = remembered.as_ref().and_then(|name| self.answered.get(name)) {
            return (answer.clone(), false);
        }
        let mut segments = path.trim_start_matches('/').splitn(3, '/');
        let (verb, kind, id) = (segments.next(), segments.next(), segments.next());
        let answer = match (verb, kind) {
            (Some("do"), Some(kind)) => self.make(kind, body),
            (Some("undo"), Some(kind)) => self.undo(kind, id, body),
            _ => Answer { status: 404, body: json!({"error": "no such route"}) },
        };
        let applied = answer.status == 200;
        if let Some(name) = remembered.filter(|_| applied) {
            self.answered.insert(name, answer.clone());
        }
        (answer, applied)
    }

    fn make(&mut self, kind: &str, body: &Value) -> Answer {
        let number = self.made.entry(kind.to_owned()).or_default();
        *number += 1;
        let id = format!("{kind}-{number}");
        let answer = json!({"id": id, "kind": kind, "number": number});
        self.objects.entry(kind.to_owned()).or_default().insert(id, body.clone());
        Answer { status: 200, body: answer }
    }

    fn undo(&mut self, kind: &str, id: Option<&str>, body: &Value) -> Answer {
        let id = id.or_else(|| body.get("id").and_then(Value::as_str)).unwrap_or_default();
        let of_kind = self.objects.entry(kind.to_owned()).or_default();
        let found = of_kind.remove(id).is_some();
        if of_kind.is_empty() {
            self.objects.remove(kind);
        }
        if found {
            Answer { status: 200, body: json!({"undone": id}) }
        } else {
            Answer { status: 404, body: json!({"error": format!("there is no {kind} {id:?}")}) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_and_undone_leaves_nothing() {
        let mut state = State::default();
        let (made, applied) = state.apply("/do/charge", Some("k"), &json!({"amount": 5}));
        assert!(applied);
        assert_eq!(made.body["id"], "charge-1");
        assert_eq!(state.objects["charge"]["charge-1"], json!({"amount": 5}));

        let (again, applied) = state.apply("/do/charge", Some("k"), &json!({"amount": 5}));
        assert!(!applied, "the same key was applied twice");
        assert_eq!(again.body, made.body);

        let (undone, applied) = state.apply("/undo/charge/charge-1", Some("u"), &Value::Null);
        assert!(applied);
        assert_eq!(undone.status, 200);
        assert_eq!(state.objects, Objects::new());
        assert_eq!(state.apply("/undo/charge/charge-1", Some("u"), &Value::Null).0.status, 200);
        assert_eq!(state.apply("/undo/charge/charge-1", Some("v"), &Value::Null).0.status, 404);
        assert_eq!(state.apply("/undo/charge", None, &json!({"id": "x"})).0.status, 404);
    }
}
