//! Halted sessions that are settled, pauses, the brake, and the numbers of the queue.

use serde_json::json;
use undolog_core::{Reason, role::Role, state::SessionState};
use undolog_store::{
    StepError,
    operate::{
        BrakeOrder, DeadLetterFilter, Pause, QueueStatus, Resume, SetBrake, SettleSession,
        list_dead_letters, queue_status,
    },
    owner::Owner,
    read::{Paging, SessionFilter, list_sessions},
    sessions::RollbackScope,
};

use crate::{
    bench::{Bench, awaiting, refused},
    operate_kit::{halted, lost_payment},
    walker::{Walker, pay, rollback_id, try_claim, worker_store},
};

impl Bench {
    async fn settle(&self, note: &str) -> Result<SessionState, StepError> {
        let (caller, session_id) = (self.operator(), self.session);
        self.store.run(SettleSession { caller, session_id, note: note.into() }).await
    }

    async fn queue(&self) -> QueueStatus {
        queue_status(&self.store, &self.operator(), "").await.expect("the queue")
    }

    async fn pause(&self, compensation_fn: &str) -> Result<(), StepError> {
        let (caller, reason) = (self.operator(), "a brown-out".into());
        self.store.run(Pause { caller, compensation_fn: compensation_fn.into(), reason }).await
    }

    async fn resume(&self, compensation_fn: &str) -> bool {
        let step = Resume { caller: self.operator(), compensation_fn: compensation_fn.into() };
        self.store.run(step).await.expect("resume")
    }
}

#[tokio::test]
async fn only_a_halted_session_is_settled_and_it_leaves_the_lists() {
    let bench = Bench::new().await;
    bench.begin().await;
    refused(bench.settle("done").await, Reason::SessionNotHalted);
    halted(&bench, 1).await;
    refused(bench.settle("").await, Reason::InvalidArgument);
    let agent = bench.agent();
    let step = SettleSession { caller: agent, session_id: bench.session, note: "x".into() };
    refused(bench.store.run(step).await, Reason::PermissionDenied);
    assert_eq!(bench.settle("nothing to do").await.expect("settle"), SessionState::Halted);
    let who = "SELECT settled_by || ': ' || settled_note FROM undolog_sessions \
        WHERE session_id = $1 AND settled_at IS NOT NULL";
    assert_eq!(bench.text(who).await, "olga: nothing to do");
    bench.check().await;

    let (store, caller, paging) = (&bench.store, bench.operator(), Paging::default());
    let sessions = list_sessions(store, &caller, &SessionFilter::default(), &paging).await;
    assert!(sessions.expect("a list").rows.is_empty());
    let everything = DeadLetterFilter { all: true, ..Default::default() };
    let letters = list_dead_letters(store, &caller, &everything, false, &paging).await;
    assert!(letters.expect("a list").rows.is_empty());
    assert_eq!((bench.queue().await.halted, bench.queue().await.dead_letters_open), (0, 0));
    // It is still found by its session, and can be taken up again.
    bench.retry_letter(bench.the_letter().await).await.expect("retry");
    let again = "SELECT (settled_at IS NULL AND settled_by IS NULL AND settled_note IS NULL)::text \
        FROM undolog_sessions WHERE session_id = $1";
    assert_eq!(bench.text(again).await, "true");
    bench.check().await;
}

#[tokio::test]
async fn a_session_that_a_rejection_halted_is_settled_and_rolled_back_later() {
    let bench = Bench::new().await;
    pay(&bench, 1).await;
    let (_, approval) = awaiting(&bench.ask(2, "wipe").await.expect("asked"));
    bench.reject(approval).await.expect("reject");
    assert_eq!(bench.session_state().await, "halted");
    bench.settle("it may stay").await.expect("settle");
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    let settled =
        bench.text("SELECT (settled_at IS NULL)::text FROM undolog_sessions WHERE session_id = $1");
    assert_eq!(settled.await, "true", "work on it brings it back to the lists");
    Walker::claim(&bench).await.succeed().await;
    assert_eq!(bench.session_state().await, "compensated");
    bench.check().await;
}

#[tokio::test]
async fn the_queue_says_what_is_due_running_and_dead() {
    let bench = Bench::new().await;
    assert_eq!(bench.queue().await, QueueStatus { brake_state: "released".into(), ..empty() });
    lost_payment(&bench, 1).await;
    pay_more(&bench).await;
    awaiting(&bench.ask(9, "wipe").await.expect("asked"));
    let queue = bench.queue().await;
    assert_eq!((queue.unknown, queue.approvals_pending), (1, 1));
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() + interval '5 minutes'").await;
    let queue = bench.queue().await;
    assert_eq!((queue.due, queue.running, queue.waiting), (0, 0, 1));
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() - interval '5 minutes'").await;
    let queue = bench.queue().await;
    assert_eq!((queue.due, queue.running, queue.waiting), (1, 0, 0));
    assert!(queue.oldest_due_age_ms >= 300_000, "{queue:?}");
    let walker = Walker::claim(&bench).await;
    let queue = bench.queue().await;
    assert_eq!((queue.due, queue.running, queue.waiting), (0, 1, 0));
    assert_eq!(queue.oldest_due_age_ms, 0);
    let call = Walker::call(walker.step(None).await);
    let outcome = undolog_core::retry::CallOutcome::Permanent;
    walker.step(Some(crate::walker::report_of(&call, outcome))).await;
    let queue = bench.queue().await;
    assert_eq!((queue.due, queue.running, queue.halted, queue.dead_letters_open), (0, 0, 1, 1));
    let agent = queue_status(&bench.store, &bench.agent(), "").await;
    refused(agent, Reason::PermissionDenied);
    queue_status(&bench.store, &bench.caller(Role::Approver, "boss"), "").await.expect("may look");
    bench.check().await;
}

fn empty() -> QueueStatus {
    QueueStatus::default()
}

async fn pay_more(bench: &Bench) {
    let effect = bench.grant(5, "pay").await;
    bench.commit(effect, &json!({"id": "p-5"})).await.expect("commit");
}

#[tokio::test]
async fn a_pause_is_kept_and_a_resume_wakes_what_waited() {
    let bench = Bench::new().await;
    refused(bench.pause("undo_pya").await, Reason::CompensationNotFound);
    let agent = Pause { caller: bench.agent(), compensation_fn: String::new(), reason: "".into() };
    refused(bench.store.run(agent).await, Reason::PermissionDenied);
    bench.pause("undo_pay").await.expect("one function");
    bench.pause("").await.expect("all of them");
    bench.pause("").await.expect("again");
    let pauses = bench.queue().await.pauses;
    let names: Vec<_> = pauses.iter().map(|p| (&*p.compensation_fn, &*p.paused_by)).collect();
    assert_eq!(names, [("", "olga"), ("undo_pay", "olga")]);
    assert_eq!(pauses[0].reason, "a brown-out");

    // A walking rollback that a worker has put off.
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench
        .run_sql(
            "UPDATE undolog_rollbacks SET state = 'walking', due_at = now() + interval '1 hour'; \
             DELETE FROM apalis.jobs",
        )
        .await;
    let worker = worker_store(&bench).await;
    assert!(try_claim(&bench, &worker, "w").await.is_none());
    assert!(bench.resume("").await);
    assert!(!bench.resume("").await, "there is none any more");
    let subject: String = sqlx::query_scalar("SELECT job ->> 'subject' FROM apalis.jobs")
        .fetch_one(bench.db.pool())
        .await
        .expect("a ticket");
    assert_eq!(subject, rollback_id(&bench).await.to_string());
    assert!(try_claim(&bench, &worker, "w").await.is_some(), "it is due");
    assert_eq!(bench.queue().await.pauses.len(), 1);
}

/// `count` sessions of an organisation, each with a walking rollback that waits for an hour.
async fn put_off(bench: &Bench, org: uuid::Uuid, count: u32) {
    bench
        .run_sql(&format!(
            "WITH made AS (INSERT INTO undolog_sessions (session_id, org_id, state) \
               SELECT uuidv7_or_random(), '{org}', 'compensating' FROM generate_series(1, {count}) \
               RETURNING session_id, org_id) \
             INSERT INTO undolog_rollbacks (org_id, session_id, kind, state, cause, requested_by, \
               created_at, due_at) \
             SELECT org_id, session_id, 'whole', 'walking', 'request', 'x', now(), \
               now() + interval '1 hour' FROM made"
        ))
        .await;
}

/// How many of an organisation's rollbacks are due within so many seconds.
async fn due_within(bench: &Bench, org: uuid::Uuid, seconds: f64) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM undolog_rollbacks WHERE org_id = $1 \
         AND due_at <= clock_timestamp() + $2 * interval '1 second'",
    )
    .bind(org)
    .bind(seconds)
    .fetch_one(bench.db.pool())
    .await
    .expect("count")
}

#[tokio::test]
async fn a_resume_wakes_what_waited_one_after_the_other() {
    let bench = Bench::new().await;
    let org = bench.org.id;
    bench.pause("").await.expect("all of them");
    put_off(&bench, org, 1_000).await;
    assert!(bench.resume("").await);
    // 50 a second: the last of a thousand after 20 s.
    let soon = due_within(&bench, org, 5.0).await;
    assert!((1..=400).contains(&soon), "{soon} of 1,000 are due at once");
    assert_eq!(due_within(&bench, org, 21.0).await, 1_000);
    let tickets: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM apalis.jobs WHERE run_at > now() + interval '1 second'",
    )
    .fetch_one(bench.db.pool())
    .await
    .expect("tickets");
    assert!(tickets > 300, "their tickets wait as well: {tickets}");

    // Many more come closer together, so that the last one waits no longer than a minute.
    bench.pause("").await.expect("all of them");
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() + interval '1 hour'").await;
    put_off(&bench, org, 5_000).await;
    assert!(bench.resume("").await);
    assert_eq!(due_within(&bench, org, 61.0).await, 6_000);
    let soon = due_within(&bench, org, 5.0).await;
    assert!(soon <= 1_500, "{soon} of 6,000 are due at once");

    // Everywhere: each organisation's first one comes before anybody's second.
    let other = undolog_tests::world::Org::create(bench.db.pool(), "other").await.id;
    bench.run_sql("UPDATE undolog_rollbacks SET due_at = now() + interval '1 hour'").await;
    put_off(&bench, other, 2).await;
    let mut owner = Owner::connect(&bench.db.url().to_owned().into()).await.expect("the owner");
    owner.pause_all("root", "").await.expect("pause");
    owner.resume_all().await.expect("resume").expect("a pause");
    assert_eq!(due_within(&bench, other, 1.0).await, 2, "they are among the first");
    let soon = due_within(&bench, org, 5.0).await;
    assert!((1..=1_500).contains(&soon), "{soon} of 6,000 are due at once");
}

#[tokio::test]
async fn the_owner_pauses_every_organisation() {
    let bench = Bench::new().await;
    let mut owner = Owner::connect(&bench.db.url().to_owned().into()).await.expect("the owner");
    assert_eq!(owner.resume_all().await.expect("resume"), None);
    let pause = owner.pause_all("root", "incident 7").await.expect("pause");
    assert!(bench.queue().await.paused_everywhere);
    assert_eq!(
        owner.pause_all("root", "incident 8").await.expect("again").paused_at,
        pause.paused_at
    );
    assert_eq!(owner.paused_all().await.expect("a look").expect("a pause").reason, "incident 8");
    pay(&bench, 1).await;
    bench.rollback(RollbackScope::Whole).await.expect("rollback");
    bench
        .run_sql(
            "UPDATE undolog_rollbacks SET state = 'walking', due_at = now() + interval '1 hour'",
        )
        .await;
    let ended = owner.resume_all().await.expect("resume").expect("a pause");
    assert_eq!(ended.paused_by, "root");
    assert!(!bench.queue().await.paused_everywhere);
    let worker = worker_store(&bench).await;
    assert!(try_claim(&bench, &worker, "w").await.is_some(), "it is due");
    owner.close().await.expect("goodbye");
}

#[tokio::test]
async fn an_operators_word_on_the_brake_stands() {
    let bench = Bench::new().await;
    let set = |order| bench.store.run(SetBrake { caller: bench.operator(), order });
    let agent = SetBrake { caller: bench.agent(), order: BrakeOrder::Forced };
    refused(bench.store.run(agent).await, Reason::PermissionDenied);
    for order in [BrakeOrder::Stopped, BrakeOrder::Forced, BrakeOrder::Released] {
        set(order).await.expect("set");
        let queue = bench.queue().await;
        assert_eq!(queue.brake_state, order.as_str());
        assert_eq!(queue.brake_hold_until, None);
        assert_eq!(BrakeOrder::named(order.as_str()), Some(order));
    }
    set(BrakeOrder::Stopped).await.expect("set");
    let worker = worker_store(&bench).await;
    let lost = std::collections::BTreeMap::from([(300_000, 3)]);
    let allowed = undolog_store::sweeps::brake(&worker, bench.org.id, &lost).await;
    assert_eq!(allowed.expect("a decision").sessions, 0, "no sweep takes it back");
    let by: String = sqlx::query_scalar("SELECT set_by FROM undolog_brakes WHERE org_id = $1")
        .bind(bench.org.id)
        .fetch_one(bench.db.pool())
        .await
        .expect("the brake");
    assert_eq!(by, "olga");
    assert_eq!(BrakeOrder::named("raised"), None);
}
