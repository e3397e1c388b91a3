//! Short ways to act as an operator, and sessions that need one.

use serde_json::{Value, json};
use undolog_core::{Reason, retry::CallOutcome, role::Role, state::SessionState};
use undolog_store::{
    Caller, StepError,
    operate::{
        DeadLetterFilter, DeadLetterItem, EffectResolved, Resolution, ResolveDeadLetter,
        ResolveEffect, RetryDeadLetter, SkipDeadLetter, list_dead_letters,
    },
    read::Paging,
    walk::Next,
};
use uuid::Uuid;

use crate::{
    bench::Bench,
    walker::{Walker, pay, report_of},
};

/// The operator that most tests act as.
pub(crate) const OPERATOR: &str = "olga";

impl Bench {
    pub(crate) fn operator(&self) -> Caller {
        self.caller(Role::Operator, OPERATOR)
    }

    /// The open dead letters, the newest first.
    pub(crate) async fn open_letters(&self) -> Vec<DeadLetterItem> {
        self.letters(false).await
    }

    pub(crate) async fn letters(&self, closed: bool) -> Vec<DeadLetterItem> {
        let filter = DeadLetterFilter { session_id: Some(self.session), ..Default::default() };
        list_dead_letters(&self.store, &self.operator(), &filter, closed, &Paging::default())
            .await
            .expect("a list")
            .rows
    }

    /// The only open dead letter.
    pub(crate) async fn the_letter(&self) -> Uuid {
        let letters = self.open_letters().await;
        assert_eq!(letters.len(), 1, "{letters:?}");
        letters[0].dead_letter.dead_letter_id
    }

    pub(crate) async fn retry_letter(
        &self,
        dead_letter_id: Uuid,
    ) -> Result<SessionState, StepError> {
        self.retry_with(dead_letter_id, None, false).await
    }

    pub(crate) async fn retry_with(
        &self,
        dead_letter_id: Uuid,
        args: Option<&str>,
        fresh_key: bool,
    ) -> Result<SessionState, StepError> {
        let args = args.map(|args| args.as_bytes().to_vec());
        let (caller, note) = (self.operator(), "mended".into());
        self.store.run(RetryDeadLetter { caller, dead_letter_id, args, fresh_key, note }).await
    }

    pub(crate) async fn skip_letter(
        &self,
        dead_letter_id: Uuid,
    ) -> Result<SessionState, StepError> {
        let (caller, reason) = (self.operator(), "the customer keeps it".into());
        self.store.run(SkipDeadLetter { caller, dead_letter_id, reason }).await
    }

    pub(crate) async fn resolve_letter(
        &self,
        dead_letter_id: Uuid,
    ) -> Result<SessionState, StepError> {
        let (caller, note) = (self.operator(), "refunded by hand".into());
        self.store.run(ResolveDeadLetter { caller, dead_letter_id, note }).await
    }

    pub(crate) async fn resolve_effect(
        &self,
        effect_id: Uuid,
        resolve: Resolution,
    ) -> Result<EffectResolved, StepError> {
        let (caller, session_id) = (self.operator(), self.session);
        let note = "asked the bank".into();
        self.store.run(ResolveEffect { caller, session_id, effect_id, resolve, note }).await
    }

    /// How the newest closed dead letter was settled.
    pub(crate) async fn settled_as(&self) -> String {
        self.text(
            "SELECT resolution || ' by ' || closed_by || COALESCE(': ' || note, '') \
             FROM undolog_dead_letters WHERE session_id = $1 AND closed_at IS NOT NULL \
             ORDER BY closed_at DESC LIMIT 1",
        )
        .await
    }

    pub(crate) async fn run_sql(&self, sql: &str) {
        crate::walker::run(self.db.pool(), sql).await;
    }
}

pub(crate) fn committed(output: &Value) -> Resolution {
    Resolution::Committed { output: output.to_string().into_bytes() }
}

/// `count` payments whose rollback was halted by the uppermost one, which was refused for good.
pub(crate) async fn halted(bench: &Bench, count: u32) -> Vec<Uuid> {
    let effects = pay(bench, count).await;
    let walker = Walker::start(bench).await;
    let call = Walker::call(walker.step(None).await);
    let next = walker.step(Some(report_of(&call, CallOutcome::Permanent))).await;
    assert!(matches!(next, Next::Done), "{next:?}");
    effects
}

/// `count` payments whose compensations were all refused for good, under the policy to go on.
pub(crate) async fn all_failed(bench: &Bench, count: u32) -> Vec<Uuid> {
    bench.org.set(bench.db.pool(), "on_dead_letter", "continue").await;
    let effects = pay(bench, count).await;
    let walker = Walker::start(bench).await;
    let mut report = None;
    while let Next::Call(call) = walker.step(report.take()).await {
        report = Some(report_of(&call, CallOutcome::Permanent));
    }
    effects
}

/// An irreversible call whose outcome nobody knows.
pub(crate) async fn lost_wipe(bench: &Bench, step: u32) -> Uuid {
    let effect = bench.running_wipe(step).await;
    bench.continue_on_failure().await;
    bench.run_sql("UPDATE undolog_orgs SET settle_ms = 0").await;
    bench.fail(effect, undolog_core::state::FailedEffect::Unknown).await.expect("unknown");
    effect
}

/// A payment whose outcome nobody knows.
pub(crate) async fn lost_payment(bench: &Bench, step: u32) -> Uuid {
    bench.continue_on_failure().await;
    bench.run_sql("UPDATE undolog_orgs SET settle_ms = 0").await;
    let effect = bench.grant(step, "pay").await;
    bench.fail(effect, undolog_core::state::FailedEffect::Unknown).await.expect("unknown");
    effect
}

/// A late Commit is heard with the session's state, and recorded all the same.
pub(crate) async fn commit_late(bench: &Bench, effect: Uuid) {
    match bench.commit(effect, &json!({"id": "late"})).await {
        Ok(()) => {}
        Err(StepError::Refused(refusal)) => {
            let told = [Reason::SessionCompensated, Reason::SessionHalted, Reason::Contradicted];
            assert!(told.contains(&refusal.reason), "{refusal}");
        }
        other => panic!("{other:?}"),
    }
}
