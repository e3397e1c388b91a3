//! Parsed registrations, kept until their organisation's registry changes.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;

use super::{CompensationBundle, ToolBundle, schema::Schema};

/// Entries of one generation: two of them bound the memory, whatever the callers name.
const GENERATION_MAX: usize = 1_024;
/// Memory of one generation of compiled schemas, about.
const SCHEMA_BYTES_KEPT: usize = 64 * 1024 * 1024;

/// A digest of a schema's text, or of a schema and a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

/// What an entry is found by. The version is as it was asked: `None` is the newest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) org_id: Uuid,
    pub(super) name: String,
    pub(super) version: Option<String>,
}

/// Parsed tools and compensations of all organisations that this process serves.
#[derive(Debug)]
pub struct RegistryCache {
    tools: Mutex<OfEpoch<ToolBundle>>,
    compensations: Mutex<OfEpoch<CompensationBundle>>,
    /// By their texts: a change of the registry compiles only what changed.
    schemas: Mutex<Generations<Digest, Compiled>>,
    /// Checks that a step left its transaction for.
    outcomes: Mutex<Generations<Digest, Result<(), String>>>,
}

impl Default for RegistryCache {
    fn default() -> Self {
        Self {
            tools: Mutex::new(Generations::new(GENERATION_MAX)),
            compensations: Mutex::new(Generations::new(GENERATION_MAX)),
            schemas: Mutex::new(Generations::new(SCHEMA_BYTES_KEPT)),
            outcomes: Mutex::new(Generations::new(GENERATION_MAX)),
        }
    }
}

impl RegistryCache {
    pub(super) fn tool(&self, key: &Key, epoch: i64) -> Option<Arc<ToolBundle>> {
        lock(&self.tools).at(key, epoch)
    }

    pub(super) fn keep_tool(&self, key: Key, epoch: i64, bundle: Arc<ToolBundle>) {
        lock(&self.tools).keep(key, 1, (epoch, bundle));
    }

    pub(super) fn compensation(&self, key: &Key, epoch: i64) -> Option<Arc<CompensationBundle>> {
        lock(&self.compensations).at(key, epoch)
    }

    pub(super) fn keep_compensation(&self, key: Key, epoch: i64, bundle: Arc<CompensationBundle>) {
        lock(&self.compensations).keep(key, 1, (epoch, bundle));
    }

    pub(super) fn schema(&self, key: &Digest) -> Option<Compiled> {
        lock(&self.schemas).get(key)
    }

    pub(super) fn keep_schema(&self, key: Digest, text_bytes: usize, schema: Compiled) {
        let bytes = text_bytes + schema.as_ref().map_or(0, |schema| schema.bytes());
        lock(&self.schemas).keep(key, bytes, schema);
    }

    pub(super) fn outcome(&self, key: &Digest) -> Option<Result<(), String>> {
        lock(&self.outcomes).get(key)
    }

    pub(super) fn keep_outcome(&self, key: Digest, outcome: Result<(), String>) {
        lock(&self.outcomes).keep(key, 1, outcome);
    }
}

fn lock<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A schema, or why its text is none.
type Compiled = Result<Arc<Schema>, String>;

/// What is kept until its epoch is over.
type OfEpoch<T> = Generations<Key, (i64, Arc<T>)>;

impl<T> OfEpoch<T> {
    fn at(&mut self, key: &Key, epoch: i64) -> Option<Arc<T>> {
        let (at, value) = self.get(key)?;
        (at == epoch).then_some(value)
    }
}

/// Two generations: when the young one is full it becomes the old one, and what is still used moves
/// over at its next use.
#[derive(Debug)]
struct Generations<K, V> {
    young: HashMap<K, (usize, V)>,
    old: HashMap<K, (usize, V)>,
    /// What the young one's values weigh together, and may weigh.
    young_weight: usize,
    weight_max: usize,
}

impl<K, V> Generations<K, V> {
    fn new(weight_max: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_weight: 0, weight_max }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Generations<K, V> {
    fn get(&mut self, key: &K) -> Option<V> {
        if let Some((_, value)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (weight, value) = self.old.remove(key)?;
        self.keep(key.clone(), weight, value.clone());
        Some(value)
    }

    fn keep(&mut self, key: K, weight: usize, value: V) {
        if let Some((replaced, _)) = self.young.remove(&key) {
            self.young_weight -= replaced;
        }
        if self.young_weight + weight > self.weight_max {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.young_weight += weight;
        self.young.insert(key, (weight, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> Key {
        Key { org_id: Uuid::nil(), name: format!("tool{n}"), version: None }
    }

    #[test]
    fn an_entry_lives_until_its_epoch_is_over() {
        let mut kept = OfEpoch::new(GENERATION_MAX);
        kept.keep(key(1), 1, (7, Arc::new("seven")));
        assert_eq!(kept.at(&key(1), 7).as_deref(), Some(&"seven"));
        assert_eq!(kept.at(&key(1), 8), None);
        assert_eq!(kept.at(&key(2), 7), None);
    }

    #[test]
    fn schemas_are_bounded_by_what_they_weigh() {
        let mut kept = Generations::new(SCHEMA_BYTES_KEPT);
        let key = |n: u64| Digest::of(&[&n.to_le_bytes()]);
        let third = SCHEMA_BYTES_KEPT / 3;
        for n in 0..30 {
            kept.keep(key(n), third, n);
            assert_eq!(kept.get(&key(0)), Some(0));
        }
        assert!(kept.young.len() + kept.old.len() <= 6);
        assert_eq!(kept.get(&key(10)), None);
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
    }

    #[test]
    fn the_memory_is_bounded_and_used_entries_stay() {
        let mut kept = OfEpoch::new(GENERATION_MAX);
        for n in 0..3 * GENERATION_MAX {
            kept.keep(key(n), 1, (1, Arc::new(n)));
            assert_eq!(kept.at(&key(0), 1).as_deref(), Some(&0));
        }
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION_MAX);
    }
}
