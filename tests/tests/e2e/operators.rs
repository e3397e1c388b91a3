//! What the workers cannot settle, operators can, from one place.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tonic::Status;
use undolog_proto::v1::{
    BeginRequest, DeadLetterFilter, DeadLetterItem, DeadLettersChanged, FailedEffect,
    GetApprovalRequest, GetDeadLetterRequest, GetQueueStatusRequest, ListApprovalsRequest,
    ListDeadLettersRequest, ListSessionsRequest, ListUnknownRequest, PauseQueueRequest,
    QueueStatus, ResolveDeadLettersRequest, ResolveEffectRequest, ResumeQueueRequest,
    RetryDeadLettersRequest, SetBrakeRequest, SettleSessionRequest, SkipDeadLettersRequest,
    WatchApprovalRequest, intercept_response::Outcome,
};
use undolog_tests::check::fold_check;
use undolog_tests::pg::Skew;
use undolog_tests::witness::{Act, Script};
use undolog_tests::world::{Agent, Client, ToolSpec, grant, reason_of};
use undolog_tests::{SOON, World, eventually, within};

use crate::approvals::skewed;
use crate::humans::{count, effect_state, swept};

const MINUTE: Duration = Duration::from_secs(60);

fn of_session(agent: &Agent) -> Option<DeadLetterFilter> {
    Some(DeadLetterFilter { session_id: agent.session.to_string(), ..DeadLetterFilter::default() })
}

fn by_id(id: &str) -> Option<DeadLetterFilter> {
    Some(DeadLetterFilter { dead_letter_ids: vec![id.to_owned()], ..DeadLetterFilter::default() })
}

async fn letters(client: &Client, filter: Option<DeadLetterFilter>) -> Vec<DeadLetterItem> {
    let request = ListDeadLettersRequest { filter, ..ListDeadLettersRequest::default() };
    client.operator().list_dead_letters(request).await.expect("list").into_inner().dead_letters
}

fn id_of(item: &DeadLetterItem) -> String {
    item.dead_letter.as_ref().expect("a dead letter").dead_letter_id.clone()
}

async fn retry(
    client: &Client,
    filter: Option<DeadLetterFilter>,
    dry_run: bool,
) -> Result<DeadLettersChanged, Status> {
    let request = RetryDeadLettersRequest { filter, dry_run, ..RetryDeadLettersRequest::default() };
    Ok(client.operator().retry_dead_letters(request).await?.into_inner())
}

async fn skip(client: &Client, id: &str, reason: &str) -> Result<DeadLettersChanged, Status> {
    let request = SkipDeadLettersRequest {
        filter: by_id(id),
        reason: reason.to_owned(),
        ..SkipDeadLettersRequest::default()
    };
    Ok(client.operator().skip_dead_letters(request).await?.into_inner())
}

async fn resolve(client: &Client, id: &str, note: &str) -> Result<DeadLettersChanged, Status> {
    let request = ResolveDeadLettersRequest {
        filter: by_id(id),
        note: note.to_owned(),
        ..ResolveDeadLettersRequest::default()
    };
    Ok(client.operator().resolve_dead_letters(request).await?.into_inner())
}

async fn queue(client: &Client) -> QueueStatus {
    let request = GetQueueStatusRequest::default();
    client.operator().get_queue_status(request).await.expect("the queue").into_inner()
}

async fn pause(client: &Client) -> QueueStatus {
    let request = PauseQueueRequest { reason: "a test".into(), ..PauseQueueRequest::default() };
    client.operator().pause_queue(request).await.expect("pause").into_inner()
}

async fn resume(client: &Client) -> QueueStatus {
    let request = ResumeQueueRequest::default();
    client.operator().resume_queue(request).await.expect("resume").into_inner()
}

/// A session that did `charge`, `mail`, `charge`; the undo of `mail` is refused, so it halted.
async fn halted(world: &World) -> Agent {
    world.tool(ToolSpec::compensable("charge")).await;
    world.tool(ToolSpec::compensable("mail")).await;
    let mut agent = world.agent().await;
    for (n, tool) in ["charge", "mail", "charge"].into_iter().enumerate() {
        agent.call(tool, &json!({"n": n})).await;
    }
    world.witness.script(Script::always("/undo/mail", Act::Status(400)));
    agent.rollback().await.unwrap();
    agent.wait_state("halted", SOON).await;
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_rollback_fails_and_a_retry_after_the_mend_finishes_it() {
    let world = World::start().await;
    let olga = world.client("operator", "olga").await;
    let agent = halted(&world).await;
    let shown = agent.show().await.unwrap();
    let states: Vec<&str> = shown.undo_stack.iter().map(|entry| entry.state.as_str()).collect();
    assert_eq!(states, ["compensated", "failed", "pending"], "from the top");
    assert_eq!(shown.session.unwrap().dead_letters_open, 1);
    let journal = "SELECT count(*) FROM undolog_effect_events WHERE subject = 'session' \
        AND to_state = 'halted'";
    assert_eq!(count(&world, journal).await, 1, "the journal says so");
    assert_eq!(world.witness.calls_to("/undo/charge").len(), 1, "what lies below is untouched");

    let open = letters(&olga, of_session(&agent)).await;
    assert_eq!(open.len(), 1);
    assert_eq!((open[0].tool_name.as_str(), open[0].session_state.as_str()), ("mail", "halted"));
    let id = id_of(&open[0]);
    let request = GetDeadLetterRequest { dead_letter_id: id.clone(), ..Default::default() };
    let detail = olga.operator().get_dead_letter(request).await.unwrap().into_inner();
    assert_eq!(detail.attempts.len(), 1);
    assert_eq!(
        (detail.attempts[0].status, detail.attempts[0].outcome.as_str()),
        (400, "permanent")
    );
    let next = detail.next_call.expect("what a retry would send");
    assert!(next.url.contains("/undo/mail/"), "{}", next.url);

    // Not mended yet: the same dead letter, once more.
    retry(&olga, by_id(&id), false).await.unwrap();
    within(SOON, "it is given up again", || async {
        let open = letters(&olga, of_session(&agent)).await;
        if open.len() == 1 && id_of(&open[0]) != id { Ok(()) } else { Err(open) }
    })
    .await;
    world.witness.behave();
    let changed = retry(&olga, of_session(&agent), false).await.unwrap();
    assert_eq!((changed.matched, changed.changed), (1, 1));
    agent.wait_state("compensated", SOON).await;
    let calls = world.witness.calls_to("/undo/");
    let applied = calls.iter().filter(|call| call.applied).count();
    assert_eq!((applied, calls.len()), (3, 5), "each is undone once");
    world.rollback_check(agent.session).await;
    assert!(letters(&olga, None).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_retry_is_tried_out_first_and_keeps_the_order_of_each_session() {
    for fresh_key in [false, true] {
        bulk_retry(fresh_key).await;
    }
}

async fn bulk_retry(fresh_key: bool) {
    let world = World::start().await;
    world.org.set(world.pool(), "on_dead_letter", "continue").await;
    world.tool(ToolSpec::compensable("charge").retries(0, 50)).await;
    let olga = world.client("operator", "olga").await;
    world.witness.script(Script::always("/undo/", Act::Status(400)));
    let mut agents = Vec::new();
    for _ in 0..2 {
        let mut agent = world.agent().await;
        let mut made = Vec::new();
        for n in 0..5 {
            let call = agent.call("charge", &json!({"n": n})).await;
            made.push(call.result["id"].as_str().unwrap().to_owned());
        }
        agent.rollback().await.unwrap();
        made.reverse();
        agents.push((agent, made));
    }
    for (agent, _) in &agents {
        agent.wait_state("halted", SOON).await;
    }
    let refused = retry(&olga, None, false).await.unwrap_err();
    assert_eq!(reason_of(&refused), "INVALID_ARGUMENT", "everything has to be asked for");
    let class = Some(DeadLetterFilter {
        reason: "PERMANENT".into(),
        compensation_fn: "undo_charge".into(),
        ..DeadLetterFilter::default()
    });
    let tried = retry(&olga, class.clone(), true).await.unwrap();
    assert_eq!((tried.matched, tried.changed), (10, 10));
    assert_eq!(letters(&olga, class.clone()).await.len(), 10, "a dry run changes nothing");
    assert_eq!(world.witness.calls_to("/undo/").len(), 10);

    world.witness.behave();
    let request = RetryDeadLettersRequest { filter: class, fresh_key, ..Default::default() };
    let changed = olga.operator().retry_dead_letters(request).await.unwrap().into_inner();
    assert_eq!((changed.matched, changed.changed, changed.more), (10, 10, false));
    for (agent, _) in &agents {
        agent.wait_state("compensated", SOON).await;
    }
    let calls = world.witness.calls_to("/undo/").split_off(10);
    let keys: BTreeSet<_> = calls.iter().map(|call| call.key().unwrap().to_owned()).collect();
    assert_eq!((calls.len(), keys.len()), (10, 10));
    for (agent, made) in &agents {
        let own = calls.iter().map(|call| call.last_segment().to_owned());
        let own: Vec<String> = own.filter(|id| made.contains(id)).collect();
        assert_eq!(&own, made, "last call first");
        fold_check(world.pool(), agent.session).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_operators_one_settles_a_dead_letter_and_the_others_are_told() {
    let world = World::start().await;
    let agent = halted(&world).await;
    let olga = world.client("operator", "olga").await;
    let id = id_of(&letters(&olga, of_session(&agent)).await[0]);
    world.witness.behave();
    let settled = (0..12).map(|n| {
        let (client, id) = (olga.clone(), id.clone());
        tokio::spawn(async move {
            match n % 3 {
                0 => retry(&client, by_id(&id), false).await,
                1 => skip(&client, &id, "it does not matter").await,
                _ => resolve(&client, &id, "done by hand").await,
            }
        })
    });
    let answers = join_all(settled).await.into_iter().map(|answer| answer.unwrap().unwrap());
    let changes: Vec<_> = answers.flat_map(|answer| answer.changes).collect();
    assert_eq!(changes.iter().filter(|change| change.changed).count(), 1, "{changes:?}");
    let told = changes.iter().filter(|change| change.why_not == "DEAD_LETTER_CLOSED").count();
    assert_eq!(told, 11, "{changes:?}");
    agent.wait_state("compensated", SOON).await;
    fold_check(world.pool(), agent.session).await;

    // Whoever is no operator is not even asked.
    for role in ["agent", "approver", "executor"] {
        let other = world.client(role, "agent-1").await;
        let refused = skip(&other, &id, "no").await.unwrap_err();
        assert_eq!(reason_of(&refused), "PERMISSION_DENIED", "{role}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_skip_and_a_resolution_let_the_walk_go_on() {
    let world = World::start().await;
    let olga = world.client("operator", "olga").await;
    for by_hand in [false, true] {
        world.witness.behave();
        let agent = halted(&world).await;
        let id = id_of(&letters(&olga, of_session(&agent)).await[0]);
        let blank =
            if by_hand { resolve(&olga, &id, " ").await } else { skip(&olga, &id, "").await };
        assert_eq!(reason_of(&blank.unwrap_err()), "INVALID_ARGUMENT");
        let changed = if by_hand {
            resolve(&olga, &id, "asked them to forget it").await.unwrap()
        } else {
            skip(&olga, &id, "they never read it").await.unwrap()
        };
        assert_eq!(changed.changed, 1);
        let shown = agent.wait_state("compensated", SOON).await;
        let mail = &shown.undo_stack[1];
        assert_eq!(mail.state, if by_hand { "compensated" } else { "skipped" });
        assert_eq!(shown.dead_letters[0].closed_by, "olga");
        fold_check(world.pool(), agent.session).await;
    }
    assert_eq!(world.witness.calls_to("/undo/charge").len(), 4);
}

/// An agent whose sessions go on after a failure.
async fn going_on(world: &World) -> Agent {
    let client = world.client("agent", "agent-1").await;
    let request = BeginRequest {
        on_tool_failure: "continue".into(),
        on_unknown: "hold".into(),
        ..BeginRequest::default()
    };
    Agent::begin_with(client, &world.witness, request).await
}

fn resolution(agent: &Agent, effect: &str, named: &str, result: &Value) -> ResolveEffectRequest {
    ResolveEffectRequest {
        session_id: agent.session.to_string(),
        effect_id: effect.to_owned(),
        r#as: named.to_owned(),
        result: if result.is_null() { Vec::new() } else { result.to_string().into_bytes() },
        note: "the bank's statement says so".to_owned(),
        ..ResolveEffectRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_what_nobody_knew() {
    let world = World::start().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let olga = world.client("operator", "olga").await;
    let mut agent = going_on(&world).await;
    let mut asked = Vec::new();
    for n in 0..3 {
        let request = agent.request("charge", &json!({"n": n}));
        let granted = grant(agent.ask(request.clone()).await);
        if n == 0 {
            agent.execute("charge", &granted.effect_id, &json!({"n": n})).await;
        }
        agent.fail(&granted.effect_id, FailedEffect::Unknown).await.unwrap();
        asked.push((request, granted.effect_id));
    }
    let request = ListUnknownRequest::default();
    let listed = olga.operator().list_unknown(request).await.unwrap().into_inner().effects;
    let ids: Vec<_> = listed.iter().map(|one| one.effect.clone().unwrap().effect_id).collect();
    assert_eq!(ids, asked.iter().map(|(_, id)| id.clone()).collect::<Vec<_>>());
    assert_eq!(queue(&olga).await.unknown, 3);

    let bad = resolution(&agent, &asked[0].1, "perhaps", &Value::Null);
    let refused = olga.operator().resolve_effect(bad).await.unwrap_err();
    assert_eq!(reason_of(&refused), "INVALID_ARGUMENT");
    let result = json!({"id": "charge-1"});
    let said =
        [("committed", result.clone()), ("not_applied", json!(null)), ("undone", json!(null))];
    for ((named, result), (_, effect)) in said.iter().zip(&asked) {
        let request = resolution(&agent, effect, named, result);
        olga.operator().resolve_effect(request.clone()).await.expect(named);
        let again = olga.operator().resolve_effect(request).await;
        assert!(again.is_err() || *named == "committed", "{named} was said twice");
    }
    assert_eq!(queue(&olga).await.unknown, 0);
    match agent.ask(asked[0].0.clone()).await.unwrap() {
        Outcome::Replay(replay) => {
            assert_eq!(replay.cached_result.unwrap().output, result.to_string().into_bytes());
        }
        other => panic!("{other:?}"),
    }
    let again = grant(agent.ask(asked[1].0.clone()).await);
    assert_eq!((again.effect_id.as_str(), again.attempt), (asked[1].1.as_str(), 2));
    let made = agent.execute("charge", "another key", &json!({"n": 1})).await;
    agent.commit(&again.effect_id, &made).await.unwrap();
    let refused = agent.ask(asked[2].0.clone()).await.unwrap_err();
    assert_eq!(reason_of(&refused), "ALREADY_UNDONE");
    assert_eq!(effect_state(&world, &asked[2].1).await, "compensated");

    // A rollback undoes what happened, and nothing that was settled as undone.
    agent.rollback().await.unwrap();
    agent.wait_state("compensated", SOON).await;
    let undone: Vec<String> =
        world.witness.calls_to("/undo/").iter().map(|c| c.last_segment().to_owned()).collect();
    assert_eq!(undone, ["charge-2", "charge-1"]);
    fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_session_that_is_settled_leaves_the_lists_and_stays_halted() {
    let world = World::start().await;
    let olga = world.client("operator", "olga").await;
    let agent = halted(&world).await;
    assert_eq!(queue(&olga).await.halted, 1);
    let request = SettleSessionRequest {
        session_id: agent.session.to_string(),
        note: "written off".into(),
        ..SettleSessionRequest::default()
    };
    let settled = olga.operator().settle_session(request).await.unwrap().into_inner();
    assert_eq!(settled.state, "halted");
    let listed = olga.sessions().list(ListSessionsRequest::default()).await.unwrap().into_inner();
    assert!(listed.sessions.is_empty());
    assert!(letters(&olga, None).await.is_empty());
    let now = queue(&olga).await;
    assert_eq!((now.halted, now.dead_letters_open), (0, 0));
    let shown = agent.show().await.unwrap().session.unwrap();
    assert!(shown.state == "halted" && shown.settled_at.is_some(), "{shown:?}");
    fold_check(world.pool(), agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_ahead_ends_no_pause_and_no_breakers_rest() {
    pauses_and_breakers(&Skew::ahead(10 * MINUTE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_behind_prolongs_no_pause_and_no_breakers_rest() {
    pauses_and_breakers(&Skew::behind(10 * MINUTE)).await;
}

async fn pauses_and_breakers(skew: &Skew) {
    let mut world = skewed(skew).await;
    world.tool(ToolSpec::compensable("charge").retries(40, 50)).await;
    let olga = world.client("operator", "olga").await;
    let mut paused = world.agent().await;
    paused.call("charge", &json!({"n": 1})).await;
    assert_eq!(pause(&olga).await.pauses.len(), 1);
    paused.rollback().await.unwrap();
    swept(&world, "reaper").await;
    assert!(world.witness.calls_to("/undo/").is_empty(), "{skew:?} ended a pause");
    assert!(resume(&olga).await.pauses.is_empty());
    paused.wait_state("compensated", SOON).await;

    let mut agents = Vec::new();
    for n in 0..12 {
        let mut agent = world.agent().await;
        agent.call("charge", &json!({"n": n})).await;
        agents.push(agent);
    }
    world.witness.script(Script::always("/undo/", Act::Status(500)));
    for agent in &agents {
        agent.rollback().await.unwrap();
    }
    eventually("the breaker opens", || async {
        let breakers = queue(&olga).await.breakers;
        if breakers.iter().any(|b| b.state == "open") { Ok(()) } else { Err(breakers) }
    })
    .await;
    // What was on its way when it opened comes to its end.
    swept(&world, "reaper").await;
    let calls = world.witness.calls_to("/undo/").len();
    swept(&world, "reaper").await;
    assert_eq!(world.witness.calls_to("/undo/").len(), calls, "{skew:?} ended its rest");
    world.witness.behave();
    world.pass(MINUTE).await;
    for agent in &agents {
        agent.wait_state("compensated", Duration::from_secs(60)).await;
    }
    assert!(letters(&olga, None).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_holds_the_brake_and_lets_it_go() {
    let mut world = World::start_private().await;
    world.tool(ToolSpec::compensable("charge")).await;
    let olga = world.client("operator", "olga").await;
    let mut agent = world.agent().await;
    agent.call("charge", &json!({"n": 1})).await;
    let set = |state: &str| SetBrakeRequest { state: state.into(), ..SetBrakeRequest::default() };
    let stopped = olga.operator().set_brake(set("stopped")).await.unwrap().into_inner();
    assert_eq!(stopped.brake_state, "stopped");
    let refused = olga.operator().set_brake(set("pulled")).await.unwrap_err();
    assert_eq!(reason_of(&refused), "INVALID_ARGUMENT");
    world.pass(10 * MINUTE).await;
    swept(&world, "sessions").await;
    assert_eq!(agent.show().await.unwrap().session.unwrap().state, "active");
    olga.operator().set_brake(set("released")).await.unwrap();
    agent.wait_state("compensated", Duration::from_secs(60)).await;
    world.rollback_check(agent.session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_and_agents_see_and_settle_only_what_is_theirs() {
    let world = World::start().await;
    crate::humans::tools(&world).await;
    let halted = halted(&world).await;
    let olga = world.client("operator", "olga").await;
    let letter = id_of(&letters(&olga, of_session(&halted)).await[0]);
    let mut agent = going_on(&world).await;
    let lost = agent.grant("charge", &json!({"n": 1})).await;
    agent.fail(&lost.effect_id, FailedEffect::Unknown).await.unwrap();
    let approval = crate::humans::asked(&mut agent, &crate::humans::wire(1)).await.approval_id;

    let evil = undolog_tests::world::Org::create(world.pool(), "evil").await;
    let key = evil.key(world.pool(), "admin", "mallory").await;
    let mallory = Client::new(&world.engines[0].grpc_url(), Some(&key));
    let mut operator = mallory.operator();
    let watch = WatchApprovalRequest { approval_id: approval.clone(), ..Default::default() };
    let get = GetApprovalRequest { approval_id: approval.clone(), ..Default::default() };
    let show = GetDeadLetterRequest { dead_letter_id: letter.clone(), ..Default::default() };
    let settle = SettleSessionRequest {
        session_id: halted.session.to_string(),
        note: "mine".into(),
        ..Default::default()
    };
    let known = resolution(&agent, &lost.effect_id, "not_applied", &Value::Null);
    let refusals = [
        reason_of(&operator.watch_approval(watch).await.unwrap_err()),
        reason_of(&operator.get_approval(get.clone()).await.unwrap_err()),
        reason_of(&crate::humans::revoke(&mallory, &approval).await.unwrap_err()),
        reason_of(&operator.get_dead_letter(show).await.unwrap_err()),
        reason_of(&operator.settle_session(settle).await.unwrap_err()),
        reason_of(&operator.resolve_effect(known).await.unwrap_err()),
    ];
    let (approval_refused, session) = ("APPROVAL_NOT_FOUND", "SESSION_NOT_FOUND");
    let expected = [
        approval_refused,
        approval_refused,
        approval_refused,
        "DEAD_LETTER_NOT_FOUND",
        session,
        session,
    ];
    assert_eq!(refusals, expected);
    let changed = skip(&mallory, &letter, "gone").await.unwrap();
    assert_eq!(
        (changed.changed, changed.changes[0].why_not.as_str()),
        (0, "DEAD_LETTER_NOT_FOUND")
    );
    let empty = QueueStatus { brake_state: "released".into(), ..QueueStatus::default() };
    assert_eq!(queue(&mallory).await, empty);
    assert!(letters(&mallory, None).await.is_empty());
    let list = ListUnknownRequest::default();
    assert!(operator.list_unknown(list).await.unwrap().into_inner().effects.is_empty());

    // An agent sees the requests of its own sessions, and of no other agent's.
    let list = ListApprovalsRequest::default();
    for (client, seen) in [
        (&agent.client, 1),
        (&world.client("agent", "agent-2").await, 0),
        (&world.client("approver", "boss").await, 1),
        (&mallory, 0),
    ] {
        let page = client.operator().list_approvals(list.clone()).await.unwrap().into_inner();
        assert_eq!(page.approvals.len(), seen);
    }
    let other = world.client("agent", "agent-2").await;
    let refused = other.operator().get_approval(get).await.unwrap_err();
    assert_eq!(reason_of(&refused), "APPROVAL_NOT_FOUND");
}
