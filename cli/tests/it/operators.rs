//! The verbs of those who decide and settle, against a development server.

use std::{
    io::{BufRead as _, BufReader, Lines},
    path::PathBuf,
    process::{Child, ChildStdout, Stdio},
};

use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use undolog_proto::v1::{
    BeginRequest, CommitRequest, CompensationDescriptor, FailRequest, FailedEffect,
    InterceptRequest, ToolCall, ToolResult, intercept_response::Outcome,
    undo_log_engine_client::UndoLogEngineClient, undo_log_sessions_client::UndoLogSessionsClient,
};

use crate::kit::{Folder, Said, Server, run, undolog};

/// A development server with a call that nobody can take back, and one that can be undone.
struct Stage {
    server: Server,
    shop: Server,
    url: String,
    folder: Folder,
}

impl Stage {
    async fn build(name: &'static str) -> Self {
        let build = move || {
            let folder = Folder::new(name);
            let server = Server::dev(&folder);
            let url = server.greeting["grpc_url"].as_str().expect("an address").to_owned();
            let shop = Server::start(&["demo-service"]);
            let stage = Self { server, shop, url, folder };
            stage.compensation(&json!([]));
            let tools = json!([
                {"tool_name": "create_customer", "tier": "compensable",
                 "compensation_ref": "delete_customer"},
                {"tool_name": "send_mail", "tier": "irreversible",
                 "irreversibility_reason": "mail cannot be called back"},
            ]);
            let file = stage.file("tools.json", &tools);
            stage.verb(&["tools", "register", &file]);
            stage
        };
        tokio::task::spawn_blocking(build).await.expect("a stage")
    }

    /// Registers the compensation; these statuses mean that there is nothing left to undo.
    fn compensation(&self, done_statuses: &Value) {
        let shop = self.shop.greeting["url"].as_str().expect("an address");
        let compensation = json!({
            "fn_name": "delete_customer",
            "description": "Delete the customer",
            "fn_body": {
                "kind": "http",
                "method": "DELETE",
                "endpoint": format!("{shop}/customers/{{result.customer_id}}"),
                "done_statuses": done_statuses,
            },
        });
        let file = self.file("compensation.json", &compensation);
        self.verb(&["compensations", "register", &file]);
    }

    fn file(&self, name: &str, content: &Value) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, content.to_string()).expect("a file");
        path.to_str().expect("a path of ours").to_owned()
    }

    fn run(&self, args: &[&str]) -> Said {
        run(&[args, &["--engine-url", &self.url]].concat())
    }

    /// A verb that succeeds, and its JSON.
    #[track_caller]
    fn verb(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--json"]].concat()).ok().json()
    }

    /// What a person sees.
    #[track_caller]
    fn text(&self, args: &[&str]) -> String {
        self.run(args).ok().stdout
    }

    #[track_caller]
    fn refused(&self, args: &[&str], reason: &str) {
        let said = self.run(args);
        assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
        assert!(said.stderr.starts_with(&format!("error: {reason}: ")), "{}", said.stderr);
    }

    /// A verb that stays and writes lines.
    fn stay(&self, args: &[&str]) -> Staying {
        let args = [args, &["--json", "--engine-url", &self.url]].concat();
        let mut child = undolog(&args).stdout(Stdio::piped()).spawn().expect("start the program");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Staying { child, lines }
    }

    fn channel(&self) -> Channel {
        Endpoint::from_shared(self.url.clone()).expect("a URL").connect_lazy()
    }

    async fn begin(&self) -> String {
        let request = BeginRequest {
            agent_name: "tester".into(),
            on_tool_failure: "continue".into(),
            on_unknown: "hold".into(),
            ..BeginRequest::default()
        };
        let mut sessions = UndoLogSessionsClient::new(self.channel());
        sessions.begin(request).await.expect("begin").into_inner().session_id
    }

    async fn ask(&self, session_id: &str, step_index: u32, tool: &str) -> Outcome {
        let call = ToolCall {
            session_id: session_id.to_owned(),
            tool_name: tool.to_owned(),
            step_index,
            args: json!({"to": "ada"}).to_string().into_bytes(),
            ..ToolCall::default()
        };
        let request = InterceptRequest { tool_call: Some(call), ..InterceptRequest::default() };
        let answer = UndoLogEngineClient::new(self.channel()).intercept(request).await;
        answer.expect("intercept").into_inner().outcome.expect("an outcome")
    }

    /// Asks for a mail and answers its approval's id.
    async fn mail(&self, session_id: &str, step_index: u32) -> String {
        match self.ask(session_id, step_index, "send_mail").await {
            Outcome::AwaitingApproval(waiting) => waiting.approval_id,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a customer and answers the effect's id.
    async fn customer(&self, session_id: &str, step_index: u32) -> String {
        match self.ask(session_id, step_index, "create_customer").await {
            Outcome::Execute(granted) => granted.effect_id,
            other => panic!("{other:?}"),
        }
    }

    /// A session with so many customers that the service does not know, rolled back and halted.
    async fn halted(&self, customers: u32) -> String {
        let session_id = self.begin().await;
        for step in 0..customers {
            let effect_id = self.customer(&session_id, step).await;
            let output = json!({"customer_id": format!("none_{step}")}).to_string().into_bytes();
            let commit = CommitRequest {
                effect_id,
                session_id: session_id.clone(),
                result: Some(ToolResult { success: true, output, ..ToolResult::default() }),
                ..CommitRequest::default()
            };
            UndoLogEngineClient::new(self.channel()).commit(commit).await.expect("commit");
        }
        self.verb(&["sessions", "rollback", &session_id]);
        self.wait(&session_id, "halted");
        session_id
    }

    /// Waits until the session is in this state.
    #[track_caller]
    fn wait(&self, session_id: &str, state: &str) {
        let started = std::time::Instant::now();
        loop {
            let shown = self.verb(&["sessions", "show", session_id]);
            if shown["session"]["state"] == state {
                return;
            }
            assert!(started.elapsed().as_secs() < 60, "not {state}: {shown}");
        }
    }

    fn letter(&self, session_id: &str) -> String {
        let listed = self.verb(&["dead-letters", "list", "--session", session_id]);
        assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
        listed[0]["dead_letter_id"].as_str().expect("an id").to_owned()
    }
}

/// A verb that stays. It ends with this value.
struct Staying {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Staying {
    fn line(&mut self) -> Value {
        let line = self.lines.next().expect("one more line").expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _its_status_does_not_matter = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sees_requests_and_decides_about_them() {
    let stage = Stage::build("approvals").await;
    let session = stage.begin().await;
    let first = stage.mail(&session, 0).await;
    let listed = stage.verb(&["approvals", "list"]);
    assert_eq!(listed[0]["approval_id"], first.as_str());
    assert_eq!(listed[0]["proposed_args"], json!({"to": "ada"}));
    assert!(stage.text(&["approvals", "list"]).contains("send_mail"));
    assert!(stage.text(&["approvals", "show", &first]).contains("mail cannot be called back"));

    let mut watcher = stage.stay(&["approvals", "watch", &first]);
    assert_eq!(watcher.line()["approval"]["state"], "pending");
    let args = stage.file("args.json", &json!({"to": "bob"}));
    let approve =
        ["approvals", "approve", &first, "--args", &args, "--note", "bob", "--actor", "Ada"];
    assert_eq!(stage.verb(&approve)["approved_args"], json!({"to": "bob"}));
    let told = watcher.line();
    assert_eq!(
        (&told["approval"]["state"], &told["is_final"]),
        (&json!("approved"), &json!(false))
    );
    let shown = stage.verb(&["approvals", "show", &first]);
    let decision = &shown["events"][0];
    assert_eq!(
        (&decision["action"], &decision["claimed_actor"]),
        (&json!("modify"), &json!("Ada"))
    );
    assert_eq!(decision["args_diff"][0]["path"], "/to");
    stage.verb(&["approvals", "revoke", &first]);
    assert_eq!(watcher.line()["is_final"], true);
    assert!(watcher.child.wait().expect("its end").success(), "a watch ends with the request");
    stage.refused(&["approvals", "approve", &first], "APPROVAL_ALREADY_RESOLVED");

    let second = stage.mail(&session, 1).await;
    stage.verb(&["approvals", "reject", &second, "--note", "no"]);
    stage.refused(&["approvals", "approve", &second], "APPROVAL_ALREADY_RESOLVED");
    let nobody = "00000000-0000-7000-8000-000000000000";
    stage.refused(&["approvals", "show", nobody], "APPROVAL_NOT_FOUND");
    let rejected = stage.verb(&["approvals", "list", "--state", "rejected"]);
    assert_eq!(rejected.as_array().map(Vec::len), Some(1));
    assert_eq!(stage.verb(&["approvals", "list"]), json!([]));

    stage.wait(&session, "halted");
    assert_eq!(stage.run(&["sessions", "settle", &session]).code, Some(2), "a note is needed");
    assert_eq!(stage.verb(&["sessions", "settle", &session, "--note", "x"])["state"], "halted");
    assert_eq!(stage.verb(&["sessions", "list"]), json!([]));
    stage.refused(&["sessions", "settle", nobody, "--note", "x"], "SESSION_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_settled_one_by_one_or_by_a_filter() {
    let stage = Stage::build("letters").await;
    let session = stage.halted(2).await;
    let letter = stage.letter(&session);
    assert!(stage.text(&["dead-letters", "list"]).contains("create_customer"));
    let shown = stage.verb(&["dead-letters", "show", &letter]);
    assert_eq!(shown["attempts"][0]["status"], 404);
    assert_eq!(shown["next_call"]["method"], "DELETE");
    let text = stage.text(&["dead-letters", "show", &letter]);
    assert!(text.contains("a retry would send"), "{text}");

    // A dry run changes nothing; much at once is not changed unasked.
    let all = ["dead-letters", "skip", "--all", "--reason", "who cares"];
    let tried = stage.verb(&[&all[..], &["--dry-run"]].concat());
    assert_eq!((&tried["matched"], &tried["changed"]), (&json!(1), &json!(1)));
    let said = stage.run(&all);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("--yes"), "{}", said.stderr);
    let everything = ["dead-letters", "skip", "--reason", "x", "--yes"];
    stage.refused(&everything, "INVALID_ARGUMENT");
    assert_eq!(stage.letter(&session), letter);

    // Mended, it goes back to work, and the walk goes on to the end.
    stage.compensation(&json!([404]));
    let retried =
        stage.verb(&["dead-letters", "retry", "--class", "PERMANENT", "--note", "mended"]);
    assert_eq!(retried["changed"], 1);
    stage.wait(&session, "compensated");
    stage.refused(&["dead-letters", "retry", &letter], "DEAD_LETTER_CLOSED");
    assert_eq!(stage.verb(&["dead-letters", "list"]), json!([]));
    let closed = stage.verb(&["dead-letters", "list", "--closed"]);
    assert_eq!(closed[0]["closed_by"], "dev");

    stage.compensation(&json!([]));
    let session = stage.halted(1).await;
    let by_hand = ["dead-letters", "resolve", &stage.letter(&session), "--note", "deleted by hand"];
    assert_eq!(stage.verb(&by_hand)["changed"], 1);
    stage.wait(&session, "compensated");
    let closed = stage.verb(&["dead-letters", "list", "--closed", "--session", &session]);
    assert_eq!(closed[0]["note"], "deleted by hand");
    let letter = closed[0]["dead_letter_id"].as_str().expect("an id");
    assert!(stage.text(&["dead-letters", "show", letter]).contains("deleted by hand"));
    let session = stage.halted(1).await;
    assert_eq!(stage.verb(&[&all[..], &["--yes"]].concat())["changed"], 1);
    stage.wait(&session, "compensated");
    assert!(stage.text(&all).contains("no dead letter fits"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_is_paused_resumed_and_looked_at() {
    let stage = Stage::build("queue").await;
    let paused = stage.verb(&["queue", "pause", "--reason", "they are down"]);
    assert_eq!(paused["pauses"][0]["paused_by"], "dev");
    stage.verb(&["queue", "pause", "--compensation", "delete_customer"]);
    let text = stage.text(&["queue", "status"]);
    assert!(text.contains("every compensation") && text.contains("they are down"), "{text}");
    stage.verb(&["queue", "resume"]);
    let resumed = stage.verb(&["queue", "resume", "--compensation", "delete_customer"]);
    assert_eq!(resumed["pauses"], json!([]));
    let unknown = ["queue", "pause", "--compensation", "no_such"];
    stage.refused(&unknown, "COMPENSATION_NOT_FOUND");
    assert_eq!(stage.run(&["queue", "pause", "--everywhere"]).code, Some(2), "the owner's URL");
    let greeting = &stage.server.greeting;
    if let Some(file) = greeting["password_file"].as_str() {
        // The screen shows no password; whoever may read the data folder has it.
        let password = std::fs::read_to_string(file).expect("the password's file");
        let shown = greeting["database_url"].as_str().expect("the database's URL");
        assert!(!greeting.to_string().contains(password.trim()), "{shown}");
        let url = &shown.replacen('@', &format!(":{}@", password.trim()), 1);
        stage.verb(&["queue", "pause", "--everywhere", "--owner-url", url]);
        assert_eq!(stage.verb(&["queue", "status"])["paused_everywhere"], true);
        stage.verb(&["queue", "resume", "--everywhere", "--owner-url", url]);
    }
    assert_eq!(stage.verb(&["queue", "status"])["paused_everywhere"], false);
    assert_eq!(
        stage.verb(&["queue", "notifications", "list", "--state", "sent,failed"]),
        json!([])
    );
    stage.refused(&["queue", "notifications", "list", "--state", "lost"], "INVALID_ARGUMENT");
    assert_eq!(stage.verb(&["queue", "notifications", "replay", "--all"]), json!({"replayed": 0}));
    assert_eq!(stage.run(&["queue", "notifications", "replay"]).code, Some(2), "which ones?");
    let stopped = stage.verb(&["sessions", "brake", "stop"]);
    assert_eq!(stopped["brake_state"], "stopped");
    let said = stage.run(&["sessions", "brake", "force"]);
    assert_eq!(said.code, Some(2), "nobody was asked: {}", said.stderr);
    assert_eq!(stage.verb(&["sessions", "brake", "release"])["brake_state"], "released");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_taken_out_of_use_and_brought_back() {
    let stage = Stage::build("active").await;
    let out = stage.verb(&["tools", "deactivate", "send_mail"]);
    assert_eq!(out["changed_versions"], json!(["1.0.0"]));
    assert_eq!(stage.verb(&["tools", "show", "send_mail"])["is_active"], false);
    assert!(stage.text(&["tools", "deactivate", "send_mail"]).contains("out of use before"));
    stage.refused(
        &["tools", "deactivate", "send_mail", "--version", "2.0.0"],
        "TOOL_NOT_REGISTERED",
    );
    let back = stage.text(&["tools", "activate", "send_mail", "--version", "1.0.0"]);
    assert!(back.contains("send_mail 1.0.0 is in use now"), "{back}");
    // A file can say so as well.
    let tool = json!({"tool_name": "look", "tier": "safe", "is_active": false});
    let registered = stage.verb(&["tools", "register", &stage.file("look.json", &tool)]);
    assert_eq!(registered[0]["is_active"], false);
    assert_eq!(stage.verb(&["tools", "show", "look"])["is_active"], false);
    stage.verb(&["compensations", "deactivate", "delete_customer"]);
    assert_eq!(stage.verb(&["compensations", "show", "delete_customer"])["is_active"], false);
    stage.verb(&["compensations", "activate", "delete_customer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_says_whether_a_call_happened() {
    let stage = Stage::build("unknown").await;
    let session = stage.begin().await;
    let effect_id = stage.customer(&session, 0).await;
    let fail = FailRequest {
        effect_id: effect_id.clone(),
        session_id: session.clone(),
        error: "no answer".into(),
        effect: FailedEffect::Unknown.into(),
        ..FailRequest::default()
    };
    UndoLogEngineClient::new(stage.channel()).fail(fail).await.expect("fail");
    let listed = stage.verb(&["unknown", "list"]);
    assert_eq!(listed[0]["effect"]["effect_id"], effect_id.as_str());
    assert!(stage.text(&["unknown", "list"]).contains("create_customer"));
    assert_eq!(stage.verb(&["unknown", "show", &effect_id]), listed[0]);
    let text = stage.text(&["unknown", "show", &effect_id]);
    assert!(text.contains("unknown") && text.contains(&session), "{text}");
    let result = stage.file("result.json", &json!({"customer_id": "c_9"}));
    let wrong =
        ["unknown", "resolve", &effect_id, "--as", "undone", "--result", &result, "--note", "x"];
    assert_eq!(stage.run(&wrong).code, Some(2));
    let said = [
        "unknown",
        "resolve",
        &effect_id,
        "--as",
        "committed",
        "--result",
        &result,
        "--note",
        "seen",
    ];
    assert_eq!(stage.verb(&said)["effect_state"], "committed");
    let shown = stage.verb(&["sessions", "show", &session]);
    assert_eq!(shown["effects"][0]["result"], json!({"customer_id": "c_9"}));
    assert_eq!(stage.verb(&["unknown", "list"]), json!([]));
    stage.refused(&said, "EFFECT_NOT_FOUND");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_of_each_session_that_changes() {
    let stage = Stage::build("watch").await;
    let first = stage.begin().await;
    let mut watcher = stage.stay(&["sessions", "--watch"]);
    let told = watcher.line();
    assert_eq!((&told["session_id"], &told["state"]), (&json!(first), &json!("active")));
    let second = stage.begin().await;
    assert_eq!(watcher.line()["session_id"], second.as_str());
    stage.mail(&first, 0).await;
    let told = watcher.line();
    assert_eq!((&told["session_id"], &told["state"]), (&json!(first), &json!("awaiting_approval")));
    assert_eq!(stage.run(&["sessions"]).code, Some(2), "a verb or --watch");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_to_be_shown_says_how_it_is_read() {
    let stage = Stage::build("sizes").await;
    let session = stage.begin().await;
    let args = json!({"to": "a".repeat(4_000_000)}).to_string();
    let call = ToolCall {
        session_id: session.clone(),
        tool_name: "create_customer".to_owned(),
        args: args.clone().into_bytes(),
        ..ToolCall::default()
    };
    let compensation = CompensationDescriptor {
        fn_name: "delete_customer".to_owned(),
        args: br#"{"v":"{to}"}"#.to_vec(),
        ..CompensationDescriptor::default()
    };
    let request = InterceptRequest {
        tool_call: Some(call),
        compensation: Some(compensation),
        ..InterceptRequest::default()
    };
    let mut engine = UndoLogEngineClient::new(stage.channel());
    let answer = engine.intercept(request).await.expect("intercept").into_inner();
    let Some(Outcome::Execute(granted)) = answer.outcome else { panic!("no grant") };
    let output = json!({"customer_id": "r".repeat(4_000_000)}).to_string().into_bytes();
    let commit = CommitRequest {
        effect_id: granted.effect_id.clone(),
        session_id: session.clone(),
        result: Some(ToolResult { success: true, output, ..ToolResult::default() }),
        ..CommitRequest::default()
    };
    engine.commit(commit).await.expect("commit");

    let shown = stage.text(&["sessions", "show", &session]);
    let entry = &stage.verb(&["sessions", "show", &session])["undo_stack"][0];
    assert_eq!(entry["fields_left_out"], json!(["compensation_args"]));
    let undo_id = entry["undo_id"].as_str().expect("an id");
    assert!(shown.contains("(left out: too large)"), "{}", &shown[..1_000.min(shown.len())]);
    let read = ["sessions", "value", "undo_entry", undo_id, "compensation_args"];
    assert!(shown.contains(&format!("undolog {}", read.join(" "))));
    assert_eq!(stage.text(&read).trim_end(), args.replace("to", "v"));
    let plan = stage.text(&["sessions", "rollback", &session, "--dry-run"]);
    assert!(plan.contains("undolog sessions value next_call") && plan.contains(" url"), "{plan}");
    let read = ["sessions", "value", "effect", &granted.effect_id, "args"];
    assert_eq!(stage.text(&read).trim_end(), args);
    stage.refused(&["sessions", "value", "effect", undo_id, "args"], "EFFECT_NOT_FOUND");
}
