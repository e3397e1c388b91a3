//! The owner's verbs and the exit codes.

use crate::kit::{Folder, Said, run};
use undolog_embedded::{Auth, ClusterOptions};

#[test]
fn the_owner_makes_organisations_projects_and_keys() {
    let folder = Folder::new("verbs");
    let cluster = ClusterOptions::new(folder.path().join("pg"))
        .auth(Auth::Trust)
        .fsync(false)
        .start()
        .expect("a private Postgres");
    let url = cluster.url("postgres");
    let verb = |args: &[&str]| run(&[args, &["--owner-url", &url, "--json"]].concat());

    let early = verb(&["orgs", "list"]);
    assert_eq!(early.code, Some(1));
    assert!(early.stderr.contains("SCHEMA_NOT_CURRENT"), "{}", early.stderr);
    for server in ["engine", "worker"] {
        let said = run(&[server, "--database-url", &url, "--http-listen", "127.0.0.1:0"]);
        assert_eq!(said.code, Some(1));
        assert!(said.stderr.contains("SCHEMA_NOT_CURRENT"), "{}", said.stderr);
    }
    assert_eq!(verb(&["migrate", "--check"]).code, Some(1));
    let first = verb(&["migrate"]).ok().json();
    assert!(first["applied"].as_array().is_some_and(|applied| applied.len() >= 3));
    let second = verb(&["migrate"]).ok().json();
    assert_eq!(second["applied"], serde_json::json!([]));
    verb(&["migrate", "--check"]).ok();

    let org = verb(&["orgs", "create", "acme", "--name", "Acme"]).ok().json();
    assert_eq!(org["on_tool_failure"], "rollback");
    let again = verb(&["orgs", "create", "acme"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("REGISTRATION_CONFLICT"), "{}", again.stderr);
    let set = ["orgs", "set", "acme", "--on-unknown", "hold", "--settle-ms", "250"];
    let changed = verb(&set).ok().json();
    assert_eq!(
        (changed["on_unknown"].as_str(), changed["settle_ms"].as_i64()),
        (Some("hold"), Some(250))
    );
    let back = ["orgs", "set", "acme", "--on-unknown", "default", "--settle-ms", "default"];
    let back = verb(&back).ok().json();
    assert!(back["on_unknown"].is_null() && back["settle_ms"].is_null(), "{back}");
    assert_eq!(
        verb(&["orgs", "show", org["org_id"].as_str().expect("an id")]).ok().json()["slug"],
        "acme"
    );

    policies(&verb);

    let make = ["keys", "create", "--org", "acme", "--role", "agent", "--principal", "bot"];
    let key = verb(&make).ok().json();
    let (secret, id) =
        (key["key"].as_str().expect("a key"), key["key_id"].as_str().expect("an id"));
    let rotated =
        verb(&["keys", "rotate", "--org", "acme", id, "--grace-seconds", "60"]).ok().json();
    assert_eq!((&rotated["principal"], &rotated["role"]), (&key["principal"], &key["role"]));
    assert_ne!(rotated["key"], key["key"]);
    verb(&["keys", "revoke", "--org", "acme", id]).ok();
    let listed = verb(&["keys", "list", "--org", "acme"]).ok();
    assert!(!listed.stdout.contains(secret), "a key is shown only once");
    let revoked = listed
        .json()
        .as_array()
        .expect("keys")
        .iter()
        .filter(|key| !key["revoked_at"].is_null())
        .count();
    assert_eq!(revoked, 1);
    cluster.stop().expect("stop");
}

/// A project, and the policies of approvals and notifications.
fn policies(verb: &dyn Fn(&[&str]) -> Said) {
    let project = verb(&["projects", "create", "--org", "acme", "billing"]).ok().json();
    assert_eq!(project["updated_at"], project["created_at"]);
    assert_eq!(verb(&["projects", "list", "--org", "acme"]).ok().json()[0]["name"], "billing");
    let set = ["projects", "set", "--org", "acme", "billing", "--approval-quorum", "2"];
    assert_eq!(verb(&set).ok().json()["approval_quorum"], 2);
    let back = ["projects", "set", "--org", "acme", "billing", "--approval-quorum", "default"];
    assert!(verb(&back).ok().json()["approval_quorum"].is_null());
    let moved = verb(&["projects", "list", "--org", "acme"]).ok().json();
    assert_ne!(moved[0]["updated_at"], moved[0]["created_at"], "it was changed: {moved}");
    let bad = ["projects", "set", "--org", "acme", "billing", "--approval-quorum", "0"];
    assert!(verb(&bad).stderr.contains("INVALID_ARGUMENT"));
    let none = ["projects", "set", "--org", "acme", "no-such"];
    assert!(verb(&none).stderr.contains("PROJECT_NOT_FOUND"));

    let hook = ["orgs", "set", "acme", "--webhook-url", "https://hooks.example/undolog"];
    assert_eq!(verb(&hook).code, Some(1), "a webhook needs a secret's name");
    let signed = [&hook[..], &["--webhook-secret", "HOOK", "--requester-may-approve", "false"]];
    let signed = verb(&signed.concat()).ok().json();
    assert_eq!(
        (&signed["webhook_secret"], &signed["requester_may_approve"]),
        (&serde_json::json!("HOOK"), &serde_json::json!(false))
    );
    let ended = verb(&["orgs", "set", "acme", "--webhook-url", "none"]).ok().json();
    assert!(ended["webhook_url"].is_null() && ended["webhook_secret"].is_null(), "{ended}");
}

#[test]
fn exit_codes_tell_refused_from_wrong_and_from_unavailable() {
    assert_eq!(run(&["--help"]).code, Some(0));
    assert_eq!(run(&["no-such-verb"]).code, Some(2));
    assert_eq!(run(&["orgs", "list"]).code, Some(2), "no database was named");
    assert_eq!(run(&["orgs", "list", "--owner-url", "nonsense"]).code, Some(2));
    let away = ["orgs", "list", "--owner-url", "postgres://nobody@127.0.0.1:1/x"];
    assert_eq!(run(&away).code, Some(3));
    let away = run(&["sessions", "list", "--engine-url", "http://127.0.0.1:1", "--json"]);
    assert_eq!(away.code, Some(3));
    assert!(away.stderr.contains(r#""reason":"UNAVAILABLE""#), "{}", away.stderr);
    assert!(away.stdout.is_empty(), "errors go to stderr alone");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let mut child = crate::kit::undolog(&["--help"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("start the program");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("await it");
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
