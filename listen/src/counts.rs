//! Counts by whose they are; whoever has nothing any more is forgotten.

use std::{collections::HashMap, hash::Hash};

pub(crate) fn count<K: Eq + Hash>(counts: &HashMap<K, usize>, key: K) -> usize {
    counts.get(&key).copied().unwrap_or_default()
}

pub(crate) fn less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: K, by: usize) {
    if let Some(n) = counts.get_mut(&key) {
        *n -= by;
        if *n == 0 {
            counts.remove(&key);
        }
    }
}
