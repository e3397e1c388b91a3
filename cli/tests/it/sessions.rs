//! The verbs of agents' runs, against a development server and the demonstration's service.

use serde_json::{Value, json};
use tonic::transport::Endpoint;
use undolog_proto::v1::{
    BeginRequest, CommitRequest, InterceptRequest, ToolCall, ToolResult,
    intercept_response::Outcome, undo_log_engine_client::UndoLogEngineClient,
    undo_log_sessions_client::UndoLogSessionsClient,
};

use crate::kit::{Folder, Server, run};

/// A development server with a tool that creates customers and can delete them again.
struct Stage {
    _server: Server,
    shop: Server,
    url: String,
    folder: Folder,
}

impl Stage {
    fn build() -> Self {
        let folder = Folder::new("sessions");
        let server = Server::dev(&folder);
        let url = server.greeting["grpc_url"].as_str().expect("an address").to_owned();
        let shop = Server::start(&["demo-service"]);
        let stage = Self { _server: server, shop, url, folder };
        stage.register();
        stage
    }

    fn register(&self) {
        let shop = self.shop.greeting["url"].as_str().expect("an address");
        let compensation = json!({
            "fn_name": "delete_customer",
            "description": "Delete the customer",
            "fn_body": {
                "kind": "http",
                "method": "DELETE",
                "endpoint": format!("{shop}/customers/{{result.customer_id}}"),
                "arg_mapping": {"name": "{args.name}"},
            },
        });
        let tool = json!([{
            "tool_name": "create_customer",
            "tier": "compensable",
            "compensation_ref": "delete_customer",
            "tool_schema": {"type": "object", "required": ["name"]},
        }]);
        for (verb, content) in [("compensations", compensation), ("tools", tool)] {
            let file = self.folder.path().join(format!("{verb}.json"));
            std::fs::write(&file, content.to_string()).expect("a file");
            let file = file.to_str().expect("a path of ours");
            self.verb(&[verb, "register", file]);
        }
    }

    /// A verb that succeeds, and its JSON.
    fn verb(&self, args: &[&str]) -> Value {
        run(&[args, &["--engine-url", &self.url, "--json"]].concat()).ok().json()
    }

    fn refused(&self, args: &[&str], reason: &str) {
        let said = run(&[args, &["--engine-url", &self.url]].concat());
        assert_eq!(said.code, Some(1), "{}{}", said.stdout, said.stderr);
        assert!(said.stderr.starts_with(&format!("error: {reason}: ")), "{}", said.stderr);
    }

    /// A session in which these customers were created, one step each.
    async fn session(&self, names: &[&str]) -> String {
        let channel = Endpoint::from_shared(self.url.clone()).expect("a URL").connect_lazy();
        let mut sessions = UndoLogSessionsClient::new(channel.clone());
        let begin = BeginRequest { agent_name: "tester".to_owned(), ..BeginRequest::default() };
        let session_id = sessions.begin(begin).await.expect("begin").into_inner().session_id;
        let mut engine = UndoLogEngineClient::new(channel);
        for (step, name) in (0..).zip(names) {
            let call = ToolCall {
                session_id: session_id.clone(),
                tool_name: "create_customer".to_owned(),
                step_index: step,
                args: json!({"name": name}).to_string().into_bytes(),
                ..ToolCall::default()
            };
            let request = InterceptRequest { tool_call: Some(call), ..InterceptRequest::default() };
            let answer = engine.intercept(request).await.expect("intercept").into_inner();
            let Some(Outcome::Execute(execute)) = answer.outcome else { panic!("{answer:?}") };
            let output = json!({"customer_id": format!("none_{name}")}).to_string().into_bytes();
            let commit = CommitRequest {
                effect_id: execute.effect_id,
                session_id: session_id.clone(),
                result: Some(ToolResult { success: true, output, ..ToolResult::default() }),
                ..CommitRequest::default()
            };
            engine.commit(commit).await.expect("commit");
        }
        session_id
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_listed_shown_previewed_and_rolled_back() {
    let stage = tokio::task::spawn_blocking(Stage::build).await.expect("a stage");
    let id = stage.session(&["ada", "bob"]).await;
    let shown = stage.verb(&["sessions", "show", &id]);
    assert_eq!(shown["session"]["state"], "active");
    assert_eq!(shown["effects"][0]["args"], json!({"name": "ada"}));
    assert_eq!(shown["undo_stack"].as_array().map(Vec::len), Some(2));

    let preview = stage.verb(&["sessions", "rollback", &id, "--dry-run"]);
    let plan = preview["plan"].as_array().expect("a plan");
    let path = |index: usize| plan[index]["url"].as_str().expect("a URL").to_owned();
    assert!(path(0).ends_with("/customers/none_bob") && path(1).ends_with("/customers/none_ada"));
    assert_eq!(plan[0]["body"], json!({"name": "bob"}));
    assert!(preview["rollback_id"].is_null());
    assert_eq!(stage.verb(&["sessions", "show", &id]), shown, "a preview changes nothing");

    let partial = ["sessions", "rollback", &id, "--to-step", "0", "--dry-run"];
    assert_eq!(stage.verb(&partial)["plan"].as_array().map(Vec::len), Some(1));
    let begun = stage.verb(&["sessions", "rollback", &id, "--reason", "a test"]);
    assert!(begun["rollback_id"].is_string(), "{begun}");
    let listed = stage.verb(&["sessions", "list"]);
    assert_eq!(listed[0]["session_id"], id.as_str());
    // The customers are not there, so that each compensation ends in a dead letter.
    let follow = ["sessions", "events", &id, "--engine-url", &stage.url, "--json"];
    let is_halted = || {
        let said = run(&follow).ok();
        said.stdout.lines().any(|line| line.contains("\"to_state\":\"halted\""))
    };
    let began = std::time::Instant::now();
    while !is_halted() {
        assert!(began.elapsed().as_secs() < 60, "it is not halted");
    }
    let shown = stage.verb(&["sessions", "show", &id]);
    assert_eq!(shown["session"]["state"], "halted");
    assert!(!shown["dead_letters"].as_array().expect("a list").is_empty());
    let person = run(&["sessions", "show", &id, "--engine-url", &stage.url]).ok();
    for part in ["effects", "undo stack", "rollbacks", "dead letters"] {
        assert!(person.stdout.contains(&format!("\n{part}\n")), "{}", person.stdout);
    }
    let nobody = "00000000-0000-4000-8000-000000000000";
    stage.refused(&["sessions", "show", nobody], "SESSION_NOT_FOUND");
    stage.refused(&["tools", "show", "nothing"], "TOOL_NOT_REGISTERED");
}
