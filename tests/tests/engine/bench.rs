//! An engine in this process over a database of the test's own, with one organisation.

use std::net::SocketAddr;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic_types::StatusExt as _;
use undolog_engine::{DevMode, EngineOptions, RunningEngine};
use undolog_proto::v1::{
    self, InterceptRequest, RegisterCompensationRequest, RegisterToolRequest, ToolCall,
    intercept_response::Outcome,
};
use undolog_store::StoreOptions;
use undolog_tests::{
    pg::TestDb,
    world::{Client, Org},
};
use uuid::Uuid;

/// The bench.
pub(crate) struct Bench {
    pub(crate) org: Org,
    pub(crate) url: String,
    pub(crate) http: SocketAddr,
    pub(crate) running: Option<RunningEngine>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) db: TestDb,
}

/// What a test changes about the engine before it starts.
pub(crate) type Change = fn(&mut EngineOptions);

/// Options of an engine on free ports of this machine.
pub(crate) fn options(db: &TestDb) -> EngineOptions {
    let url = SecretString::from(db.url().to_owned());
    let mut options =
        EngineOptions::new(StoreOptions::new(url, Some("undolog_app"), "engine under test"));
    options.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    options.http_listen = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.grace_ms = 5_000;
    options
}

/// Development mode over the test's database.
pub(crate) fn dev_mode(db: &TestDb) -> DevMode {
    DevMode { owner_url: SecretString::from(db.url().to_owned()), default_org: "dev".to_owned() }
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: Change) -> Self {
        let db = TestDb::new().await;
        let org = Org::create(db.pool(), "acme").await;
        let mut options = options(&db);
        change(&mut options);
        Self::on(db, org, options).await
    }

    pub(crate) async fn on(db: TestDb, org: Org, options: EngineOptions) -> Self {
        let shutdown = CancellationToken::new();
        let running = undolog_engine::serve(options, shutdown.clone()).await.expect("serve");
        let url = format!("http://{}", running.grpc_addr());
        let http = running.http_addr().expect("probes are served");
        Self { org, url, http, running: Some(running), shutdown, db }
    }

    /// A client with a new key of this organisation.
    pub(crate) async fn client(&self, role: &str, principal: &str) -> Client {
        self.client_of(&self.org, role, principal).await
    }

    pub(crate) async fn client_of(&self, org: &Org, role: &str, principal: &str) -> Client {
        let key = org.key(self.db.pool(), role, principal).await;
        Client::new(&self.url, Some(&key))
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("admin", "root").await
    }

    pub(crate) async fn agent(&self) -> Client {
        self.client("agent", "agent-1").await
    }

    /// Registers `pay` (compensable), `wipe` (irreversible) and `look` (safe).
    pub(crate) async fn tools(&self, admin: &Client) {
        self.compensation(admin, "undo_pay", true).await.expect("register undo_pay");
        let pay = v1::Tool { compensation_ref: "undo_pay".into(), ..tool("pay", "compensable") };
        let wipe =
            v1::Tool { irreversibility_reason: "gone".into(), ..tool("wipe", "irreversible") };
        for tool in [pay, wipe, tool("look", "safe")] {
            self.tool(admin, tool).await.expect("register a tool");
        }
    }

    pub(crate) async fn tool(
        &self,
        client: &Client,
        tool: v1::Tool,
    ) -> Result<v1::RegisterToolResponse, Status> {
        let request = RegisterToolRequest { org_id: String::new(), tool: Some(tool) };
        Ok(client.registry().register_tool(request).await?.into_inner())
    }

    pub(crate) async fn compensation(
        &self,
        client: &Client,
        name: &str,
        open: bool,
    ) -> Result<v1::RegisterCompensationResponse, Status> {
        let body = json!({"kind": "http", "method": "POST", "endpoint": "https://undo.example/u"});
        let compensation = v1::Compensation {
            fn_name: name.into(),
            description: "undoes it".into(),
            fn_body: body.to_string().into_bytes(),
            open,
            ..v1::Compensation::default()
        };
        let request =
            RegisterCompensationRequest { org_id: String::new(), compensation: Some(compensation) };
        Ok(client.registry().register_compensation(request).await?.into_inner())
    }
}

/// A tool as it is registered.
pub(crate) fn tool(name: &str, tier: &str) -> v1::Tool {
    let (tool_name, tier) = (name.into(), tier.into());
    v1::Tool { tool_name, tier, caller_args: true, ..v1::Tool::default() }
}

/// A call at a step of a session.
pub(crate) fn call(session: Uuid, step_index: u32, tool: &str, args: &Value) -> InterceptRequest {
    InterceptRequest {
        tool_call: Some(ToolCall {
            session_id: session.to_string(),
            tool_name: tool.into(),
            step_index,
            args: args.to_string().into_bytes(),
            ..ToolCall::default()
        }),
        ..InterceptRequest::default()
    }
}

/// Asks for a call.
pub(crate) async fn ask(client: &Client, request: InterceptRequest) -> Result<Outcome, Status> {
    let answer = client.engine().intercept(request).await?.into_inner();
    Ok(answer.outcome.expect("an outcome"))
}

/// Asks for a call and expects the grant; answers the effect's id.
pub(crate) async fn grant(client: &Client, request: InterceptRequest) -> String {
    match ask(client, request).await {
        Ok(Outcome::Execute(execute)) => execute.effect_id,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Commits a result.
pub(crate) async fn commit(
    client: &Client,
    session: Uuid,
    effect_id: &str,
    output: &Value,
) -> Result<(), Status> {
    let request = v1::CommitRequest {
        effect_id: effect_id.into(),
        session_id: session.to_string(),
        result: Some(v1::ToolResult {
            success: true,
            output: output.to_string().into_bytes(),
            ..v1::ToolResult::default()
        }),
        ..v1::CommitRequest::default()
    };
    client.engine().commit(request).await.map(|_| ())
}

/// The `ErrorInfo` reason of a refusal.
pub(crate) fn reason<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    status.get_details_error_info().map_or_else(|| format!("{status:?}"), |info| info.reason)
}
