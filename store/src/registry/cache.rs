//! Parsed registrations, kept until their organisation's registry changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
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
#[derive(Debug, Default)]
pub struct RegistryCache {
    tools: Mutex<Generations<ToolBundle>>,
    compensations: Mutex<Generations<CompensationBundle>>,
    /// By their texts: a change of the registry compiles only what changed.
    schemas: Mutex<Weighted<Compiled>>,
    /// Checks that a step left its transaction for.
    outcomes: Mutex<Weighted<Result<(), String>>>,
}

impl RegistryCache {
    pub(super) fn tool(&self, key: &Key, epoch: i64) -> Option<Arc<ToolBundle>> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).get(key, epoch)
    }

    pub(super) fn keep_tool(&self, key: Key, epoch: i64, bundle: Arc<ToolBundle>) {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).keep(key, epoch, bundle);
    }

    pub(super) fn compensation(&self, key: &Key, epoch: i64) -> Option<Arc<CompensationBundle>> {
        self.compensations.lock().unwrap_or_else(PoisonError::into_inner).get(key, epoch)
    }

    pub(super) fn keep_compensation(&self, key: Key, epoch: i64, bundle: Arc<CompensationBundle>) {
        self.compensations.lock().unwrap_or_else(PoisonError::into_inner).keep(key, epoch, bundle);
    }

    pub(super) fn schema(&self, key: &Digest) -> Option<Compiled> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner).get(key)
    }

    pub(super) fn keep_schema(&self, key: Digest, text_bytes: usize, schema: Compiled) {
        let bytes = text_bytes + schema.as_ref().map_or(0, |schema| schema.bytes());
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner).keep(key, bytes, schema);
    }

    pub(super) fn outcome(&self, key: &Digest) -> Option<Result<(), String>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).get(key)
    }

    pub(super) fn keep_outcome(&self, key: Digest, outcome: Result<(), String>) {
        // As many as there are bundles, whatever their texts.
        let bytes = SCHEMA_BYTES_KEPT / GENERATION_MAX;
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).keep(key, bytes, outcome);
    }
}

/// A schema, or why its text is none.
type Compiled = Result<Arc<Schema>, String>;

/// Two generations as below, bounded by what their values weigh.
#[derive(Debug)]
struct Weighted<T> {
    young: HashMap<Digest, (usize, T)>,
    old: HashMap<Digest, (usize, T)>,
    young_bytes: usize,
}

impl<T> Default for Weighted<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_bytes: 0 }
    }
}

impl<T: Clone> Weighted<T> {
    fn get(&mut self, key: &Digest) -> Option<T> {
        if let Some((_, value)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (bytes, value) = self.old.remove(key)?;
        self.keep(*key, bytes, value.clone());
        Some(value)
    }

    fn keep(&mut self, key: Digest, bytes: usize, value: T) {
        if self.young_bytes + bytes > SCHEMA_BYTES_KEPT {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key, (bytes, value)).is_none() {
            self.young_bytes += bytes;
        }
    }
}

/// Two generations: when the young one is full it becomes the old one, and what is still used moves
/// over at its next use.
#[derive(Debug)]
struct Generations<T> {
    young: HashMap<Key, (i64, Arc<T>)>,
    old: HashMap<Key, (i64, Arc<T>)>,
}

impl<T> Default for Generations<T> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<T> Generations<T> {
    fn get(&mut self, key: &Key, epoch: i64) -> Option<Arc<T>> {
        if let Some((at, value)) = self.young.get(key) {
            return (*at == epoch).then(|| Arc::clone(value));
        }
        let (key, (at, value)) = self.old.remove_entry(key)?;
        if at != epoch {
            return None;
        }
        self.keep(key, at, Arc::clone(&value));
        Some(value)
    }

    fn keep(&mut self, key: Key, epoch: i64, value: Arc<T>) {
        if self.young.len() >= GENERATION_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, (epoch, value));
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
        let mut kept = Generations::default();
        kept.keep(key(1), 7, Arc::new("seven"));
        assert_eq!(kept.get(&key(1), 7).as_deref(), Some(&"seven"));
        assert_eq!(kept.get(&key(1), 8), None);
        assert_eq!(kept.get(&key(2), 7), None);
    }

    #[test]
    fn schemas_are_bounded_by_what_they_weigh() {
        let mut kept = Weighted::default();
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
        let mut kept = Generations::default();
        for n in 0..3 * GENERATION_MAX {
            kept.keep(key(n), 1, Arc::new(n));
            assert_eq!(kept.get(&key(0), 1).as_deref(), Some(&0));
        }
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION_MAX);
    }
}
