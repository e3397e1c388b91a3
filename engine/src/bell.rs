//! Tells the followers in this process that something happened, so that they need not wait for
//! their next look.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{Notify, futures::Notified};
use uuid::Uuid;

/// Bells by subject: an organisation or a session. Only subjects that somebody follows are kept.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<HashMap<Uuid, (usize, Arc<Notify>)>>);

impl Bells {
    /// Rings the bells of these subjects.
    pub(crate) fn ring(&self, subjects: &[Uuid]) {
        let bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in subjects {
            if let Some((_, bell)) = bells.get(subject) {
                bell.notify_waiters();
            }
        }
    }

    /// Listens to a subject's bell until the answer is dropped.
    pub(crate) fn listen(self: &Arc<Self>, subject: Uuid) -> Listener {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (listeners, bell) = bells.entry(subject).or_default();
        *listeners += 1;
        Listener { bells: Arc::clone(self), subject, bell: Arc::clone(bell) }
    }
}

/// One listener at a bell.
#[derive(Debug)]
pub(crate) struct Listener {
    bells: Arc<Bells>,
    subject: Uuid,
    bell: Arc<Notify>,
}

impl Listener {
    /// Waits for the next ring after this call, whenever the answer is first polled.
    pub(crate) fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut bells = self.bells.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((listeners, _)) = bells.get_mut(&self.subject) {
            *listeners -= 1;
            if *listeners == 0 {
                bells.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bell_is_heard_by_its_listeners_and_kept_no_longer() {
        let bells = Arc::new(Bells::default());
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let listener = bells.listen(one);
        {
            let heard = listener.rung();
            tokio::pin!(heard);
            bells.ring(&[two]);
            assert!(futures::poll!(&mut heard).is_pending());
            bells.ring(&[one]);
            heard.await;
        }
        // A ring before the first poll counts too.
        let heard = listener.rung();
        bells.ring(&[one]);
        heard.await;
        drop(listener);
        assert!(bells.0.lock().unwrap().is_empty());
    }
}
