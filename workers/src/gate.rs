//! Who may run beside whom: an entry whose worker died runs alone in its process, so that a death
//! can be laid at its door and no other's.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use undolog_store::walk::Company;

/// The gate of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gate {
    lock: Arc<RwLock<()>>,
    inside: Arc<AtomicUsize>,
}

/// The right to make calls.
#[derive(Debug)]
pub(crate) enum Pass {
    Shared { _guard: OwnedRwLockReadGuard<()>, inside: Arc<AtomicUsize> },
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Gate {
    /// Enters beside others. Waits while somebody is, or wants to be, alone.
    pub(crate) async fn shared(&self) -> Pass {
        let guard = Arc::clone(&self.lock).read_owned().await;
        self.inside.fetch_add(1, Ordering::SeqCst);
        Pass::Shared { _guard: guard, inside: Arc::clone(&self.inside) }
    }

    /// Enters when everybody has left, and keeps everybody out.
    pub(crate) async fn alone(&self) -> Pass {
        Pass::Alone { _guard: Arc::clone(&self.lock).write_owned().await }
    }
}

impl Pass {
    pub(crate) fn company(&self) -> Company {
        match self {
            Self::Shared { inside, .. } => {
                Company::Shared { is_only_one: inside.load(Ordering::SeqCst) == 1 }
            }
            Self::Alone { .. } => Company::Alone,
        }
    }

    pub(crate) const fn is_alone(&self) -> bool {
        matches!(self, Self::Alone { .. })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Self::Shared { inside, .. } = self {
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn alone_means_alone() {
        let gate = Gate::default();
        let first = gate.shared().await;
        assert_eq!(first.company(), Company::Shared { is_only_one: true });
        let second = gate.shared().await;
        assert_eq!(first.company(), Company::Shared { is_only_one: false });
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.alone().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop((first, second));
        let alone = waiting.await.expect("entered");
        assert_eq!(alone.company(), Company::Alone);
        assert!(Arc::clone(&gate.lock).try_read_owned().is_err(), "nobody else comes in");
        drop(alone);
        assert_eq!(gate.shared().await.company(), Company::Shared { is_only_one: true });
    }
}
