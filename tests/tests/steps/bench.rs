//! A database with one organisation, a few tools, and short ways to run steps on it.

use serde_json::{Value, json};
use undolog_core::{
    Reason, Tier,
    role::Role,
    state::{FailedEffect, SessionState},
};
use undolog_store::{
    Caller, StepError, Store, StoreOptions,
    approvals::{Approve, Approved, Reject},
    intercept::{Intercept, InterceptInput, InterceptReply, StepRef, StoredResult},
    registry::{RegisterCompensation, RegisterTool, ToolInput},
    report::{Commit, Fail},
    sessions::{
        Begin, Begun, Complete, Rollback, RollbackReply, RollbackScope, Savepoint, SavepointTaken,
    },
};
use undolog_tests::{check::fold_check, inputs, pg::TestDb, world::Org};
use uuid::Uuid;

/// The bench.
pub(crate) struct Bench {
    pub db: TestDb,
    pub store: Store,
    pub org: Org,
    pub session: Uuid,
}

/// The agent that most tests act as.
pub(crate) const AGENT: &str = "agent-1";

impl Bench {
    /// An organisation with the tools `pay` (compensable), `wipe` (irreversible), `look` (safe) and
    /// `put` (compensable and idempotent).
    pub(crate) async fn new() -> Self {
        Self::on(TestDb::new().await).await
    }

    /// The same on a server of its own, whose clock the test moves.
    pub(crate) async fn with_clock() -> Self {
        Self::on(TestDb::with_clock().await).await
    }

    async fn on(db: TestDb) -> Self {
        let org = Org::create(db.pool(), "acme").await;
        let url = db.url().to_owned().into();
        let options = StoreOptions::new(url, Some("undolog_app"), "steps");
        let store = Store::connect(&options).await.expect("connect as the engine");
        let bench = Self { db, store, org, session: Uuid::new_v4() };
        bench.compensation("undo_pay", json!({})).await;
        bench.compensation("undo_put", json!({})).await;
        bench
            .tool("pay", Tier::Compensable, |tool| tool.compensation_ref = "undo_pay".into())
            .await;
        bench
            .tool("put", Tier::Compensable, |tool| {
                tool.compensation_ref = "undo_put".into();
                tool.idempotent = true;
            })
            .await;
        bench
            .tool("wipe", Tier::Irreversible, |tool| {
                tool.irreversibility_reason = "the data is gone".into();
            })
            .await;
        bench.tool("look", Tier::Safe, |_| {}).await;
        bench
    }

    pub(crate) async fn compensation(&self, name: &str, more: Value) {
        let step = RegisterCompensation {
            caller: self.caller(Role::Admin, "root"),
            compensation: inputs::compensation(name, &more),
        };
        self.store.run(step).await.expect("register the compensation");
    }

    pub(crate) async fn tool(&self, name: &str, tier: Tier, change: impl FnOnce(&mut ToolInput)) {
        let mut tool = inputs::tool(name, tier);
        change(&mut tool);
        let step = RegisterTool { caller: self.caller(Role::Admin, "root"), tool, dev: false };
        self.store.run(step).await.expect("register the tool");
    }

    pub(crate) fn caller(&self, role: Role, principal: &str) -> Caller {
        Caller { org_id: self.org.id, principal: principal.into(), role, via_proxy: false }
    }

    pub(crate) fn agent(&self) -> Caller {
        self.caller(Role::Agent, AGENT)
    }

    /// A call at a step; tests change what they are about.
    pub(crate) fn input(&self, step_index: u32, tool: &str, args: &Value) -> InterceptInput {
        InterceptInput {
            caller: self.agent(),
            session_id: self.session,
            tool_id: None,
            tool_name: tool.into(),
            tool_version: String::new(),
            step: StepRef::Index { step_index, signature: None },
            args: args.to_string().into_bytes(),
            compensation: None,
            agent_context: Vec::new(),
            grant_token: None,
            accepts_approved_args: false,
            heartbeats: false,
            executor_token: None,
            reports_with_token: false,
        }
    }

    pub(crate) async fn send(&self, input: InterceptInput) -> Result<InterceptReply, StepError> {
        self.store.run(Intercept::new(input)?).await
    }

    pub(crate) async fn ask(&self, step: u32, tool: &str) -> Result<InterceptReply, StepError> {
        self.send(self.input(step, tool, &json!({"step": step}))).await
    }

    /// A granted call; answers the effect.
    pub(crate) async fn grant(&self, step: u32, tool: &str) -> Uuid {
        executed(&self.ask(step, tool).await.expect("a grant"))
    }

    pub(crate) async fn commit(&self, effect_id: Uuid, output: &Value) -> Result<(), StepError> {
        self.commit_attempt(effect_id, 0, output).await
    }

    pub(crate) async fn commit_attempt(
        &self,
        effect_id: Uuid,
        attempt: u32,
        output: &Value,
    ) -> Result<(), StepError> {
        self.store.run(Commit { attempt, ..self.commit_step(effect_id, output) }).await
    }

    pub(crate) fn commit_step(&self, effect_id: Uuid, output: &Value) -> Commit {
        let result = StoredResult {
            success: true,
            output: output.to_string().into_bytes(),
            error: String::new(),
            duration_ms: 7,
        };
        let session_id = self.session;
        Commit {
            executor_token: String::new(),
            caller: self.agent(),
            session_id,
            effect_id,
            attempt: 0,
            result,
        }
    }

    pub(crate) async fn fail(
        &self,
        effect_id: Uuid,
        effect: FailedEffect,
    ) -> Result<(), StepError> {
        self.store.run(self.fail_step(effect_id, effect)).await
    }

    pub(crate) fn fail_step(&self, effect_id: Uuid, effect: FailedEffect) -> Fail {
        Fail {
            executor_token: String::new(),
            caller: self.agent(),
            session_id: self.session,
            effect_id,
            attempt: 0,
            error: "it broke".into(),
            effect,
            on_tool_failure: String::new(),
        }
    }

    /// Fails go on in this session, so that its state stays.
    pub(crate) async fn continue_on_failure(&self) {
        self.org.set(self.db.pool(), "on_tool_failure", "continue").await;
    }

    pub(crate) async fn approve(
        &self,
        approval_id: Uuid,
        args: Option<&Value>,
    ) -> Result<Approved, StepError> {
        let step = Approve {
            caller: self.caller(Role::Approver, "boss"),
            approval_id,
            actor: "Ada".into(),
            approved_args: args.map(|args| args.to_string().into_bytes()),
            note: String::new(),
            actor_ip: None,
        };
        self.store.run(step).await
    }

    pub(crate) async fn reject(&self, approval_id: Uuid) -> Result<Uuid, StepError> {
        let caller = self.caller(Role::Approver, "boss");
        let step =
            Reject { caller, approval_id, actor: String::new(), note: "no".into(), actor_ip: None };
        self.store.run(step).await
    }

    pub(crate) async fn begin(&self) -> Begun {
        self.store.run(self.begin_step()).await.expect("begin")
    }

    pub(crate) fn begin_step(&self) -> Begin {
        Begin {
            caller: self.agent(),
            session_id: Some(self.session),
            agent_name: "tester".into(),
            external_run_id: String::new(),
            project: String::new(),
            metadata: Vec::new(),
            lease_seconds: 0,
            on_tool_failure: String::new(),
            on_rejection: String::new(),
            on_unknown: String::new(),
        }
    }

    pub(crate) async fn complete(&self) -> Result<SessionState, StepError> {
        let step =
            Complete { caller: self.agent(), session_id: self.session, accept_unknown: false };
        self.store.run(step).await
    }

    pub(crate) async fn savepoint(&self) -> SavepointTaken {
        let step = Savepoint { caller: self.agent(), session_id: self.session, name: "s".into() };
        self.store.run(step).await.expect("a savepoint")
    }

    pub(crate) async fn rollback(&self, scope: RollbackScope) -> Result<RollbackReply, StepError> {
        let step = Rollback {
            page_token: String::new(),
            caller: self.agent(),
            session_id: self.session,
            reason: "test".into(),
            scope,
            allow_residue: false,
            dry_run: false,
        };
        self.store.run(step).await
    }

    /// An irreversible call that was approved and holds its grant; answers the effect.
    pub(crate) async fn running_wipe(&self, step: u32) -> Uuid {
        let (_, approval) = awaiting(&self.ask(step, "wipe").await.expect("asked"));
        self.approve(approval, None).await.expect("approve");
        executed(&self.ask(step, "wipe").await.expect("a grant"))
    }

    /// One text of one row of the session.
    pub(crate) async fn text(&self, sql: &str) -> String {
        sqlx::query_scalar(sql).bind(self.session).fetch_one(self.db.pool()).await.expect(sql)
    }

    pub(crate) async fn session_state(&self) -> String {
        self.text("SELECT state::text FROM undolog_sessions WHERE session_id = $1").await
    }

    pub(crate) async fn effect_state(&self, effect_id: Uuid) -> String {
        sqlx::query_scalar("SELECT state::text FROM undolog_effect_log WHERE effect_id = $1")
            .bind(effect_id)
            .fetch_one(self.db.pool())
            .await
            .expect("the effect")
    }

    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table} WHERE org_id = $1");
        sqlx::query_scalar(&sql).bind(self.org.id).fetch_one(self.db.pool()).await.expect("count")
    }

    /// Lets the lease of a grant run out: the engine's service runs, and the grant is old.
    pub(crate) async fn expire(&self, effect_id: Uuid) {
        sqlx::query(
            "INSERT INTO undolog_service VALUES ('engine', now(), now() - interval '2 days') \
             ON CONFLICT (service) DO UPDATE SET last_tick_at = now(), \
             resumed_at = now() - interval '2 days'",
        )
        .execute(self.db.pool())
        .await
        .expect("a tick");
        sqlx::query(
            "UPDATE undolog_effect_log SET lease_renewed_at = now() - interval '1 day' \
             WHERE effect_id = $1",
        )
        .bind(effect_id)
        .execute(self.db.pool())
        .await
        .expect("an old grant");
    }

    pub(crate) async fn check(&self) {
        fold_check(self.db.pool(), self.session).await;
    }
}

/// The effect of an Execute.
pub(crate) fn executed(reply: &InterceptReply) -> Uuid {
    match reply {
        InterceptReply::Execute { effect_id: Some(effect_id), .. } => *effect_id,
        other => panic!("no Execute: {other:?}"),
    }
}

/// The effect and the request of an AwaitingApproval.
pub(crate) fn awaiting(reply: &InterceptReply) -> (Uuid, Uuid) {
    match reply {
        InterceptReply::AwaitingApproval { effect_id, approval_id } => (*effect_id, *approval_id),
        other => panic!("no AwaitingApproval: {other:?}"),
    }
}

/// The output of a Replay.
pub(crate) fn replayed(reply: &InterceptReply) -> Value {
    match reply {
        InterceptReply::Replay { result, .. } => {
            serde_json::from_slice(&result.output).expect("JSON")
        }
        other => panic!("no Replay: {other:?}"),
    }
}

/// Asserts a refusal.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, StepError>, reason: Reason) {
    match outcome {
        Err(StepError::Refused(refusal)) => assert_eq!(refusal.reason, reason, "{refusal}"),
        other => panic!("expected {reason}, got {other:?}"),
    }
}
