//! Notifications stand in the transaction of what they tell about, and tell no secret.

use serde_json::{Value, json};
use undolog_core::{Reason, role::Role};
use undolog_store::{
    Store, StoreOptions,
    notify::{self, Outcome},
    operate::{ReplayNotifications, list_notifications},
    owner::{OrgChange, Owner},
    read::Paging,
    sweeps,
};

use crate::bench::{Bench, awaiting, refused};

/// Sets the webhook as the owner does.
async fn webhook(bench: &Bench, url: &str) {
    let mut owner = Owner::connect(&bench.db.url().to_owned().into()).await.expect("the owner");
    let change = OrgChange {
        webhook_url: Some(Some(url.to_owned())),
        webhook_secret: Some("HOOK".to_owned()),
        ..OrgChange::default()
    };
    owner.set_org(bench.org.id, &change).await.expect("set the webhook");
}

async fn told(bench: &Bench) -> Vec<(String, Value)> {
    sqlx::query_as(
        "SELECT kind, body FROM undolog_notifications WHERE org_id = $1 \
         ORDER BY created_at, notification_id",
    )
    .bind(bench.org.id)
    .fetch_all(bench.db.pool())
    .await
    .expect("notifications")
}

async fn worker(bench: &Bench) -> Store {
    let url = bench.db.url().to_owned().into();
    let options = StoreOptions::new(url, Some("undolog_worker"), "notifier");
    Store::connect(&options).await.expect("connect as a worker")
}

#[tokio::test]
async fn each_decision_is_told_once_and_without_arguments() {
    let bench = Bench::new().await;
    webhook(&bench, "https://hooks.example/x").await;
    let mut input = bench.input(1, "wipe", &json!({"password": "hunter2"}));
    input.agent_context = br#"{"why":"hunter2"}"#.to_vec();
    let (effect, approval) = awaiting(&bench.send(input).await.expect("asked"));
    bench.reject(approval).await.expect("reject");
    refused(bench.reject(approval).await, Reason::ApprovalAlreadyResolved);
    let told = told(&bench).await;
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds[0], "approval_requested");
    let mut later = kinds[1..].to_vec();
    later.sort_unstable();
    assert_eq!(later, ["approval_resolved", "session_halted"]);
    let (_, asked) = &told[0];
    assert_eq!(asked["tool_name"], "wipe");
    assert_eq!(asked["effect_id"], json!(effect));
    assert_eq!(asked["subject_id"], json!(approval));
    assert_eq!(asked["to_state"], "pending");
    let resolved = &told.iter().find(|(kind, _)| kind == "approval_resolved").expect("told").1;
    assert_eq!(resolved["event"], "approval_rejected");
    assert_eq!(resolved["actor"], "boss");
    let all = format!("{told:?}");
    assert!(!all.contains("hunter2"), "an argument was told: {all}");
    bench.check().await;
}

#[tokio::test]
async fn nothing_is_written_without_a_webhook_or_without_a_commit() {
    let bench = Bench::new().await;
    awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    assert_eq!(told(&bench).await, [], "nobody wants notifications");
    webhook(&bench, "https://hooks.example/x").await;
    sqlx::raw_sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''no''; END'; \
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON undolog_notifications \
         INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .execute(bench.db.pool())
    .await
    .expect("a trigger");
    bench.ask(2, "wipe").await.expect_err("one transaction: both or nothing");
    assert_eq!(told(&bench).await, []);
    assert_eq!(bench.count("undolog_approval_requests").await, 1);
    bench.check().await;
}

#[tokio::test]
async fn a_notification_has_one_holder_and_a_fence() {
    let bench = Bench::new().await;
    webhook(&bench, "https://hooks.example/x").await;
    awaiting(&bench.ask(1, "wipe").await.expect("asked"));
    let (store, org_id) = (worker(&bench).await, bench.org.id);
    let first = notify::claim(&store, org_id).await.expect("claim").expect("due");
    assert!(notify::claim(&store, org_id).await.expect("claim").is_none(), "it is held");
    assert_eq!((first.attempts, first.org_slug.as_str()), (1, "acme"));
    sqlx::query("UPDATE undolog_notifications SET lease_expires_at = now() - interval '1 second'")
        .execute(bench.db.pool())
        .await
        .expect("its holder is gone");
    let second = notify::claim(&store, org_id).await.expect("claim").expect("free again");
    assert_eq!(second.notification_id, first.notification_id, "the id is stable");
    let failed = Outcome::Failed { error: "late".to_owned() };
    let late = notify::settle(&store, org_id, &first, &failed).await.expect("settle");
    assert_eq!(late, None, "an earlier holder writes nothing");
    let retry = Outcome::Retry { after_ms: 60_000, error: "no \0 answer".to_owned() };
    let state = notify::settle(&store, org_id, &second, &retry).await.expect("settle");
    assert_eq!(state, Some("pending"));
    assert!(notify::claim(&store, org_id).await.expect("claim").is_none(), "not due yet");
    sqlx::query(
        "UPDATE undolog_notifications SET due_at = now(), created_at = now() - interval '25 hours'",
    )
    .execute(bench.db.pool())
    .await
    .expect("a day later");
    let third = notify::claim(&store, org_id).await.expect("claim").expect("due");
    let state = notify::settle(&store, org_id, &third, &retry).await.expect("settle");
    assert_eq!(state, Some("failed"), "a day is enough");
    sqlx::query("UPDATE undolog_notifications SET finished_at = now() - interval '8 days'")
        .execute(bench.db.pool())
        .await
        .expect("a week later");
    sweeps::notifications(&store).await.expect("sweep");
    assert_eq!(bench.count("undolog_notifications").await, 0, "old ones go");
}

#[tokio::test]
async fn what_was_given_up_is_listed_and_sent_again_for_another_day() {
    let bench = Bench::new().await;
    webhook(&bench, "https://hooks.example/x").await;
    for step in 1..=3 {
        awaiting(&bench.ask(step, "wipe").await.expect("asked"));
    }
    let (store, org_id) = (worker(&bench).await, bench.org.id);
    let day = "UPDATE undolog_notifications SET created_at = now() - interval '25 hours'";
    bench.run_sql(day).await;
    let retry = Outcome::Retry { after_ms: 5_000, error: "HTTP 500".to_owned() };
    for _ in 0..2 {
        let tried = notify::claim(&store, org_id).await.expect("claim").expect("due");
        let state = notify::settle(&store, org_id, &tried, &retry).await.expect("settle");
        assert_eq!(state, Some("failed"));
    }
    let list = |states: &[&str]| {
        let (store, caller) = (bench.store.clone(), bench.operator());
        let states: Vec<String> = states.iter().map(|state| (*state).to_owned()).collect();
        async move {
            let page = list_notifications(&store, &caller, &states, &Paging::default()).await;
            page.expect("a list").rows
        }
    };
    let given_up = list(&[]).await;
    assert_eq!(given_up.len(), 2);
    assert_eq!(given_up[0].last_error.as_deref(), Some("HTTP 500"));
    assert_eq!(list(&["pending", "failed"]).await.len(), 3);
    let one = Some(vec![given_up[1].notification_id]);
    let replay = |caller: undolog_store::Caller, notification_ids| {
        bench.store.run(ReplayNotifications { caller, notification_ids })
    };
    refused(replay(bench.agent(), one.clone()).await, Reason::PermissionDenied);
    refused(
        replay(bench.caller(Role::Approver, "boss"), one.clone()).await,
        Reason::PermissionDenied,
    );
    let mut stranger = bench.operator();
    stranger.org_id = undolog_tests::world::Org::create(bench.db.pool(), "evil").await.id;
    assert_eq!(replay(stranger, one.clone()).await.expect("none of its own").replayed, 0);
    assert_eq!(replay(bench.operator(), one.clone()).await.expect("again").replayed, 1);
    assert_eq!(replay(bench.operator(), one).await.expect("it is pending").replayed, 0);
    assert_eq!(replay(bench.operator(), None).await.expect("the rest").replayed, 1);
    let pending = list(&["pending"]).await;
    let by: Vec<_> = pending.iter().filter_map(|row| row.replayed_by.as_deref()).collect();
    assert_eq!(by, ["olga", "olga"], "who did it stands there");
    // The first try of its new day: it is not given up at once, and keeps its id.
    bench.run_sql("DELETE FROM undolog_notifications WHERE replayed_at IS NULL").await;
    let again = notify::claim(&store, org_id).await.expect("claim").expect("due");
    assert_eq!(again.attempts, 1);
    assert!(given_up.iter().any(|row| row.notification_id == again.notification_id));
    let state = notify::settle(&store, org_id, &again, &retry).await.expect("settle");
    assert_eq!(state, Some("pending"), "a day from now");
    refused(
        list_notifications(&bench.store, &bench.agent(), &[], &Paging::default()).await.map(|_| ()),
        Reason::PermissionDenied,
    );
}

#[tokio::test]
async fn few_are_on_their_way_at_the_same_time() {
    let bench = Bench::new().await;
    webhook(&bench, "https://hooks.example/x").await;
    for step in 1..=6 {
        awaiting(&bench.ask(step, "wipe").await.expect("asked"));
    }
    let store = worker(&bench).await;
    for _ in 0..4 {
        notify::claim(&store, bench.org.id).await.expect("claim").expect("due");
    }
    let fifth = notify::claim(&store, bench.org.id).await.expect("claim");
    assert!(fifth.is_none(), "a slow receiver is flooded");
}

#[tokio::test]
async fn a_webhook_needs_a_secret_and_a_usable_url() {
    let bench = Bench::new().await;
    let mut owner = Owner::connect(&bench.db.url().to_owned().into()).await.expect("the owner");
    let with = |url: Option<&str>, secret: Option<&str>| OrgChange {
        webhook_url: Some(url.map(str::to_owned)),
        webhook_secret: secret.map(str::to_owned),
        ..OrgChange::default()
    };
    let org = bench.org.id;
    let url = Some("https://hooks.example/x");
    refused(owner.set_org(org, &with(url, None)).await, Reason::InvalidArgument);
    refused(owner.set_org(org, &with(url, Some("a/b"))).await, Reason::InvalidArgument);
    let bad = Some("https://u:p@hooks.example/");
    refused(owner.set_org(org, &with(bad, Some("HOOK"))).await, Reason::InvalidArgument);
    let set = owner.set_org(org, &with(url, Some("HOOK"))).await.expect("set");
    assert_eq!(set.webhook_secret.as_deref(), Some("HOOK"));
    let taken = owner.set_org(org, &with(None, None)).await.expect("taken away");
    assert_eq!((taken.webhook_url, taken.webhook_secret), (None, None));
}
