//! Callers that were woken by the same change ask again together: one step answers all of them.
//!
//! A decision can wake a thousand callers of one call. Were each served by a step of its own, every
//! other call of the engine would wait behind them, first of all the report of the one that was
//! granted.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::oneshot;
use tonic::Status;
use undolog_core::reason::Refusal;
use undolog_store::{
    StepError, Store, guard,
    intercept::{Answers, Intercept, InterceptReply, Share, Together},
    lanes::{Key, Lane},
};
use uuid::Uuid;

use crate::status;

/// What a caller hears.
pub(crate) type Answer = Result<InterceptReply, Denied>;

/// Why there is no reply; it can be told to many.
#[derive(Debug, Clone)]
pub(crate) enum Denied {
    Refused(Refusal),
    Fault(Status),
}

impl From<StepError> for Denied {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Refused(refusal) => Self::Refused(refusal),
            // A fault is logged here, once for all who hear of it.
            fault => Self::Fault(status::of_error(&fault)),
        }
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Refused(refusal) => status::of_refusal(&refusal),
            Denied::Fault(status) => status,
        }
    }
}

#[derive(Debug)]
struct Asker {
    call: Intercept,
    answer: oneshot::Sender<Answer>,
}

impl Asker {
    fn tell(self, answer: Answer) {
        // A caller that left meanwhile hears nothing; a grant of its own it can ask for again.
        drop(self.answer.send(answer));
    }
}

/// Who asks about which effect just now. While an effect stands here, a task serves its askers.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Mutex<HashMap<Uuid, Vec<Asker>>>);

impl Gathered {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Vec<Asker>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks about an effect, together with whoever asks now.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        store: &Store,
        effect_id: Uuid,
        call: Intercept,
    ) -> Answer {
        if !guard!("intercept.together") {
            return store.run(call).await.map_err(Denied::from);
        }
        let key = Key::of(&call);
        let (answer, heard) = oneshot::channel();
        let asker = Asker { call, answer };
        let is_served = {
            let mut gathered = self.lock();
            let is_served = gathered.contains_key(&effect_id);
            gathered.entry(effect_id).or_default().push(asker);
            is_served
        };
        if !is_served {
            tokio::spawn(Arc::clone(self).serve(store.clone(), effect_id, key));
        }
        heard.await.unwrap_or_else(|_| Err(StepError::Interrupted.into()))
    }

    /// Serves an effect's askers until there are none.
    async fn serve(self: Arc<Self>, store: Store, effect_id: Uuid, key: Key) {
        let _end = End { gathered: &self, effect_id };
        loop {
            // Whoever comes while this waits for its turn is served with the others.
            let turn = store.turn(key, Lane::Work).await;
            let Some((first, others)) = self.next(effect_id) else { return };
            let calls = others.iter().map(|asker| asker.call.clone()).collect();
            let step = Together::new(first.call.clone(), calls);
            let answered = match turn {
                Ok(turn) => store.run_in(turn, step).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(answers) => self.tell(&store, answers, first, others),
                Err(error) => {
                    let denied = Denied::from(error);
                    others.into_iter().for_each(|asker| asker.tell(Err(denied.clone())));
                    first.tell(Err(denied));
                }
            }
        }
    }

    /// The next who are served together: those that are still there and ask the same as the first
    /// of them. Without any, the effect is served no more.
    fn next(&self, effect_id: Uuid) -> Option<(Asker, Vec<Asker>)> {
        let mut gathered = self.lock();
        let waiting = gathered.get_mut(&effect_id)?;
        // Nothing is granted to a caller that left.
        waiting.retain(|asker| !asker.answer.is_closed());
        if waiting.is_empty() {
            gathered.remove(&effect_id);
            return None;
        }
        let first = waiting.remove(0);
        let all = std::mem::take(waiting);
        let (same, others) =
            all.into_iter().partition(|asker| asker.call.asks_the_same(&first.call));
        *waiting = others;
        Some((first, same))
    }

    fn tell(&self, store: &Store, answers: Answers, first: Asker, others: Vec<Asker>) {
        for (asker, share) in others.into_iter().zip(answers.others) {
            match share {
                Share::Same => asker.tell(answers.first.clone().map_err(Denied::Refused)),
                Share::Other(refusal) => asker.tell(Err(Denied::Refused(refusal))),
                Share::Alone => alone(store.clone(), asker),
            }
        }
        first.tell(answers.first.map_err(Denied::Refused));
    }
}

/// Serves one asker by a step of its own, unless it left.
fn alone(store: Store, asker: Asker) {
    tokio::spawn(async move {
        let turn = store.turn(Key::of(&asker.call), Lane::Work).await;
        if asker.answer.is_closed() {
            return;
        }
        let answered = match turn {
            Ok(turn) => store.run_in(turn, asker.call.clone()).await,
            Err(error) => Err(error),
        };
        asker.tell(answered.map_err(Denied::from));
    });
}

/// However serving ends, the next asker begins anew.
struct End<'a> {
    gathered: &'a Gathered,
    effect_id: Uuid,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        // Empty unless serving broke off: then the askers hear that it was interrupted.
        if std::thread::panicking() {
            self.gathered.lock().remove(&self.effect_id);
        }
    }
}
