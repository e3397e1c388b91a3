//! A Postgres whose clock the driver moves, with organisations and tools.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use chrono::Duration;
use serde_json::{Value, json};
use sqlx::PgPool;
use undolog_core::{Tier, role::Role};
use undolog_store::{
    Caller, Store, StoreOptions,
    registry::{RegisterCompensation, RegisterTool, ToolInput},
};
use undolog_tests::{inputs, pg::PrivateCluster, world::Org};
use uuid::Uuid;

/// What one task of the driver works on.
pub(crate) struct Lane {
    cluster: PrivateCluster,
    pub(crate) engine: Store,
    pub(crate) worker: Store,
    /// By `on_dead_letter`: halt, continue.
    pub(crate) orgs: [Uuid; 2],
    /// Seconds that the clock is off.
    moved: AtomicI64,
}

impl Lane {
    pub(crate) async fn start() -> Lane {
        let cluster = PrivateCluster::start().await;
        let store = async |role| {
            let options = StoreOptions::new(cluster.url().into(), Some(role), "oracle");
            Store::connect(&options).await.expect("connect")
        };
        let (engine, worker) = (store("undolog_app").await, store("undolog_worker").await);
        let mut orgs = [Uuid::nil(); 2];
        for (place, policy) in orgs.iter_mut().zip(["halt", "continue"]) {
            let org = Org::create(cluster.pool(), policy).await;
            org.set(cluster.pool(), "on_dead_letter", policy).await;
            org.set(cluster.pool(), "settle_ms", "0").await;
            registry(&engine, org.id).await;
            *place = org.id;
        }
        let moved = AtomicI64::new(0);
        Lane { cluster, engine, worker, orgs, moved }
    }

    /// Past row-level security.
    pub(crate) fn pool(&self) -> &PgPool {
        self.cluster.pool()
    }

    /// Moves the database's clock: time passes, or it is set.
    pub(crate) fn step_clock(&self, by: Duration) {
        self.moved.fetch_add(by.num_seconds(), Relaxed);
        self.cluster.clock().step(by);
    }

    /// The clock is right again, and nothing is left of what an earlier session had.
    pub(crate) async fn reset(&self) {
        let moved = self.moved.swap(0, Relaxed);
        self.cluster.clock().step(Duration::seconds(-moved));
        self.sql("DELETE FROM undolog_route_breakers; DELETE FROM undolog_breakers").await;
    }

    pub(crate) async fn sql(&self, sql: &str) {
        sqlx::raw_sql(sql).execute(self.pool()).await.expect(sql);
    }
}

/// A caller of one of the organisations.
pub(crate) fn caller(org_id: Uuid, role: Role, principal: &str) -> Caller {
    Caller { org_id, principal: principal.into(), role, via_proxy: false }
}

async fn registry(engine: &Store, org: Uuid) {
    for (name, body) in [
        ("undo", json!({})),
        ("undo_again", json!({"repeatable": true})),
        ("undo_result", json!({"arg_mapping": {"of": "{result.value}"}})),
    ] {
        compensation(engine, org, name, &body).await;
    }
    for (name, compensation) in
        [("pay", "undo"), ("again", "undo_again"), ("put", "undo"), ("need", "undo_result")]
    {
        let mut tool = tool(name, Tier::Compensable);
        tool.compensation_ref = compensation.into();
        tool.idempotent = name == "put";
        register(engine, org, tool).await;
    }
    for name in ["wipe", "auto"] {
        let mut tool = tool(name, Tier::Irreversible);
        tool.irreversibility_reason = "the data is gone".into();
        tool.auto_approve_on_timeout = Some(name == "auto");
        register(engine, org, tool).await;
    }
}

async fn compensation(engine: &Store, org: Uuid, name: &str, more: &Value) {
    let caller = caller(org, Role::Admin, "root");
    let compensation = inputs::compensation(name, more);
    engine.run(RegisterCompensation { caller, compensation }).await.expect("register");
}

async fn register(engine: &Store, org: Uuid, tool: ToolInput) {
    let caller = caller(org, Role::Admin, "root");
    engine.run(RegisterTool { caller, tool, dev: false }).await.expect("register the tool");
}

fn tool(name: &str, tier: Tier) -> ToolInput {
    // The clock is moved by minutes; only `approval_timeout` ends a window.
    ToolInput { approval_timeout_seconds: 604_800, ..inputs::tool(name, tier) }
}
