//! Ticks: how the journal knows that engines run, and how this engine knows that it is ready.

use tokio_util::sync::CancellationToken;
use undolog_store::{
    StepError, Store,
    quiet::Quiet,
    readiness::{LOOK_AGAIN, LOOK_EVERY, Readiness},
    service,
};

/// The name that engines tick under.
const SERVICE: &str = "engine";

static SAID: Quiet = Quiet::new();

/// When this engine's last tick got through.
#[derive(Debug)]
pub(crate) struct Ticks(Readiness);

impl Ticks {
    /// Ticks the first time. An engine serves only after it.
    pub(crate) async fn first(store: &Store) -> Result<Self, StepError> {
        service::tick(store, SERVICE).await?;
        let readiness = Readiness::default();
        readiness.succeeded();
        Ok(Self(readiness))
    }

    /// Whether the journal was written to a short while ago; if not, why not.
    pub(crate) fn verdict(&self) -> Result<(), &'static str> {
        self.0.verdict()
    }

    /// Ticks until the engine stops. A tick that fails is tried again soon.
    pub(crate) async fn go_on(&self, store: &Store, stop: &CancellationToken) {
        loop {
            let ticked = async { service::tick(store, SERVICE).await.map(drop) };
            let pause = match self.0.look(store, ticked).await {
                Ok(()) => LOOK_EVERY,
                Err(error) => {
                    metrics::counter!("undolog_tick_failures_total").increment(1);
                    if let Some(kept_back) = SAID.may_say(&error.to_string()) {
                        tracing::warn!(%error, kept_back, "the journal takes no writes");
                    }
                    LOOK_AGAIN
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}
