//! What the service holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Customers, charges and e-mails by id: what a look at the service shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct World {
    pub(crate) customers: BTreeMap<String, Value>,
    pub(crate) charges: BTreeMap<String, Value>,
    pub(crate) emails: BTreeMap<String, Value>,
}

/// One undoing call as it arrived.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct UndoCall {
    /// Its `Idempotency-Key`.
    pub(crate) key: String,
    /// `METHOD /path`.
    pub(crate) request: String,
    /// Its body.
    pub(crate) body: Value,
    /// Whether it changed anything: a repeated key does not.
    pub(crate) applied: bool,
}

/// Which of the three kinds a call is about.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Customer,
    Charge,
    Email,
}

/// The service's memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    world: World,
    undo_calls: Vec<UndoCall>,
    last_id: u32,
}

impl Memory {
    /// A service that has been in use before: what was there must be there at the end.
    pub(crate) fn with_history() -> Self {
        let mut memory = Self { last_id: 1000, ..Self::default() };
        let customer = serde_json::json!({"name": "Grace", "email": "grace@example.test"});
        let id = memory.create(Kind::Customer, customer);
        let charge = serde_json::json!({"customer_id": id, "amount_cents": 1200});
        memory.create(Kind::Charge, charge);
        memory
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn undo_calls(&self) -> &[UndoCall] {
        &self.undo_calls
    }

    /// Keeps something new and answers its id.
    pub(crate) fn create(&mut self, kind: Kind, what: Value) -> String {
        self.last_id += 1;
        let prefix = match kind {
            Kind::Customer => "cus",
            Kind::Charge => "chg",
            Kind::Email => "eml",
        };
        let id = format!("{prefix}_{}", self.last_id);
        self.of(kind).insert(id.clone(), what);
        id
    }

    /// Takes something away, once for each key. False: there is nothing with this id.
    pub(crate) fn remove(&mut self, kind: Kind, id: &str, mut call: UndoCall) -> bool {
        let seen = self.undo_calls.iter().any(|earlier| earlier.key == call.key && earlier.applied);
        call.applied = !seen && self.of(kind).remove(id).is_some();
        let known = seen || call.applied;
        self.undo_calls.push(call);
        known
    }

    fn of(&mut self, kind: Kind) -> &mut BTreeMap<String, Value> {
        match kind {
            Kind::Customer => &mut self.world.customers,
            Kind::Charge => &mut self.world.charges,
            Kind::Email => &mut self.world.emails,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(key: &str) -> UndoCall {
        let (key, request) = (key.to_owned(), "DELETE /x".to_owned());
        UndoCall { key, request, body: Value::Null, applied: false }
    }

    #[test]
    fn a_repeated_key_is_answered_alike_and_changes_nothing() {
        let mut memory = Memory::with_history();
        let before = memory.world().clone();
        let id = memory.create(Kind::Email, Value::Null);
        assert!(memory.remove(Kind::Email, &id, call("k")));
        assert!(memory.remove(Kind::Email, &id, call("k")));
        assert!(!memory.remove(Kind::Email, &id, call("other")), "another key finds nothing");
        assert_eq!(memory.world(), &before);
        let applied: Vec<bool> = memory.undo_calls().iter().map(|call| call.applied).collect();
        assert_eq!(applied, [true, false, false]);
    }
}
