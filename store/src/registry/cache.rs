//! Parsed registrations, kept until their organisation's registry changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use uuid::Uuid;

use super::{CompensationBundle, ToolBundle};

/// Entries of one generation: two of them bound the memory, whatever the callers name.
const GENERATION_MAX: usize = 1_024;

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
    fn the_memory_is_bounded_and_used_entries_stay() {
        let mut kept = Generations::default();
        for n in 0..3 * GENERATION_MAX {
            kept.keep(key(n), 1, Arc::new(n));
            assert_eq!(kept.get(&key(0), 1).as_deref(), Some(&0));
        }
        assert!(kept.young.len() + kept.old.len() <= 2 * GENERATION_MAX);
    }
}
