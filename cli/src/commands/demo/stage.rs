//! What the demonstration runs on: a database, an engine, a worker, the service, and two keys.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
};

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use undolog_core::role::Role;
use undolog_embedded::Cluster;
use undolog_proto::v1::{
    Compensation, ListToolsRequest, RegisterCompensationRequest, RegisterToolRequest, Tool,
};
use undolog_store::{migrate, owner::Owner};
use uuid::Uuid;

use super::{DemoArgs, agent::patient, http::Service, process::Process, screen::Screen};
use crate::{
    api::{Api, ApiArgs},
    error::CliError,
    postgres,
};

/// In a run with crashes this undoing call is applied but not answered in time.
pub(super) const STALLED_UNDO: usize = 2;

/// How long an undoing call takes otherwise, so that a person can watch.
const UNDO_DELAY_MS: u64 = 400;

/// Everything that runs.
#[derive(Debug)]
pub(super) struct Stage {
    folder: PathBuf,
    cluster: Option<Cluster>,
    engine: Option<Process>,
    worker: Option<Process>,
    shop: Process,
    /// The service that the agent's calls change.
    pub(super) service: Service,
    /// The agent's way to the engine.
    pub(super) agent: Api,
    /// An administrator's way to the engine.
    pub(super) admin: Api,
}

/// How to call an engine, and the processes to call if they are ours.
struct Servers {
    cluster: Option<Cluster>,
    engine: Option<Process>,
    worker: Option<Process>,
    agent: Api,
    admin: Api,
}

impl Stage {
    /// Starts everything and waits until the engine answers.
    pub(super) async fn build(args: &DemoArgs, screen: &Screen) -> Result<Self, CliError> {
        let folder = std::env::temp_dir().join(format!("undolog-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| {
            CliError::Failed(format!("cannot create {}: {error}", folder.display()))
        })?;
        let (shop, service) = start_service(&folder, args.crash).await?;
        let mut servers = match &args.engine_url {
            Some(url) => borrowed(url)?,
            None => own(args, &folder, screen).await?,
        };
        if let Err(error) = wait_for_engine(&mut servers).await {
            for process in [&servers.engine, &servers.worker].into_iter().flatten() {
                eprintln!("{}", process.log_tail());
            }
            return Err(error);
        }
        let Servers { cluster, engine, worker, agent, admin } = servers;
        Ok(Self { folder, cluster, engine, worker, shop, service, agent, admin })
    }

    /// Tells the engine about the tools and how their calls are undone.
    pub(super) async fn register(&self) -> Result<(), CliError> {
        for (tool, fn_name, method, path, mapping) in UNDOING {
            let compensation = self.compensation(fn_name, method, path, mapping)?;
            let request = RegisterCompensationRequest {
                org_id: self.admin.org(),
                compensation: Some(compensation),
            };
            self.admin.registry().register_compensation(self.admin.request(request)).await?;
            let tool = Tool {
                tool_name: tool.to_owned(),
                tier: "compensable".to_owned(),
                compensation_ref: fn_name.to_owned(),
                tool_schema: br#"{"type": "object"}"#.to_vec(),
                is_active: true,
                ..Tool::default()
            };
            let request = RegisterToolRequest { org_id: self.admin.org(), tool: Some(tool) };
            self.admin.registry().register_tool(self.admin.request(request)).await?;
        }
        Ok(())
    }

    fn compensation(
        &self,
        fn_name: &str,
        method: &str,
        path: &str,
        mapping: &str,
    ) -> Result<Compensation, CliError> {
        let mapping: Value = serde_json::from_str(mapping)
            .map_err(|error| CliError::Failed(format!("{fn_name}: {error}")))?;
        let body = json!({
            "kind": "http",
            "method": method,
            "endpoint": format!("{}{path}", self.service.url),
            "arg_mapping": mapping,
            "timeout_ms": 10_000,
        });
        Ok(Compensation {
            fn_name: fn_name.to_owned(),
            // Each run's service listens elsewhere, so each run registers versions of its own.
            fn_version: self.version(),
            description: format!("{method} {path}"),
            fn_body: body.to_string().into_bytes(),
            max_retries: Some(3),
            retry_backoff_ms: Some(500),
            is_active: true,
            ..Compensation::default()
        })
    }

    /// The service's port makes a version that no other run at the same time uses.
    fn version(&self) -> String {
        let port = self.service.url.rsplit(':').next().unwrap_or("0");
        format!("1.{}.{port}", std::process::id())
    }

    /// SIGKILL to engine and worker at once, then both again.
    pub(super) async fn crash(&mut self) -> Result<(), CliError> {
        for process in [&mut self.engine, &mut self.worker].into_iter().flatten() {
            process.kill().await?;
        }
        for process in [&mut self.engine, &mut self.worker].into_iter().flatten() {
            process.restart()?;
        }
        Ok(())
    }

    /// What the processes said last, when something went wrong.
    pub(super) fn show_logs(&self) {
        for process in [&self.engine, &self.worker].into_iter().flatten() {
            eprintln!("{}", process.log_tail());
        }
    }

    /// Stops everything, the database last.
    pub(super) async fn clear(mut self, keep: bool) {
        for process in [&mut self.worker, &mut self.engine].into_iter().flatten() {
            process.stop().await;
        }
        self.shop.stop().await;
        if let Some(cluster) = self.cluster.take()
            && let Err(error) = postgres::stop(cluster).await
        {
            tracing::warn!(%error, "the private Postgres did not stop");
        }
        if keep {
            eprintln!("kept: {}", self.folder.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(%error, folder = %self.folder.display(), "cannot be removed");
        }
    }
}

/// Tool, its compensation, and the call that it is: method, path, body.
const UNDOING: [(&str, &str, &str, &str, &str); 4] = [
    ("create_customer", "delete_customer", "DELETE", "/customers/{result.customer_id}", "{}"),
    (
        "charge_card",
        "refund_charge",
        "POST",
        "/charges/{result.charge_id}/refund",
        r#"{"amount_cents": "{args.amount_cents}", "note": "undo of {effect_id}"}"#,
    ),
    (
        "send_email",
        "recall_email",
        "POST",
        "/emails/{result.email_id}/recall",
        r#"{"to": "{args.to}"}"#,
    ),
    ("ship_order", "cancel_shipment", "DELETE", "/shipments/{result.shipment_id}", "{}"),
];

async fn start_service(
    folder: &std::path::Path,
    crash: bool,
) -> Result<(Process, Service), CliError> {
    let mut args: Vec<OsString> = vec!["demo-service".into()];
    args.extend(["--undo-delay-ms".into(), UNDO_DELAY_MS.to_string().into()]);
    if crash {
        args.extend(["--stall-undo".into(), STALLED_UNDO.to_string().into()]);
    }
    let mut process = Process::start("demo-service", folder, args, Vec::new())?;
    let line = process.first_line().await?;
    let said: Value = serde_json::from_str(&line)
        .map_err(|error| CliError::Failed(format!("the demo service said {line}: {error}")))?;
    let url = said["url"].as_str().unwrap_or_default().to_owned();
    Ok((process, Service::new(url)?))
}

fn api(engine_url: &str, key: Option<SecretString>, org: Option<&str>) -> Result<Api, CliError> {
    Api::connect(&ApiArgs {
        engine_url: engine_url.to_owned(),
        api_key: key,
        org: org.map(str::to_owned),
        timeout_seconds: 10,
    })
}

/// A development server that is there already and asks for no keys.
fn borrowed(engine_url: &str) -> Result<Servers, CliError> {
    let everybody = api(engine_url, None, Some("demo"))?;
    Ok(Servers {
        cluster: None,
        engine: None,
        worker: None,
        agent: everybody.clone(),
        admin: everybody,
    })
}

/// A database of our own or one that was named, with an engine and a worker on it.
async fn own(
    args: &DemoArgs,
    folder: &std::path::Path,
    screen: &Screen,
) -> Result<Servers, CliError> {
    let (cluster, url) = match &args.database_url {
        Some(url) => (None, url.clone()),
        None => {
            screen
                .title("Starting a private Postgres, an engine, a worker and a small service…")?;
            let cluster = postgres::start(folder.join("postgres"), args.pg_bin.clone()).await?;
            let url = postgres::url(&cluster);
            (Some(cluster), url)
        }
    };
    migrate::migrate(url.expose_secret()).await?;
    let mut owner = Owner::connect(&url).await?;
    // A database that was named can hold earlier runs.
    let slug = format!("demo-{}", &Uuid::new_v4().simple().to_string()[..8]);
    let org_id = owner.create_org(&slug, "Demonstration").await?.org_id;
    let agent = owner.create_key(org_id, Role::Agent, "order-desk", None).await?.secret;
    let admin = owner.create_key(org_id, Role::Admin, "administrator", None).await?.secret;
    owner.close().await?;

    let engine_url = format!("http://127.0.0.1:{}", free_port()?);
    let engine = start_engine(folder, &url, &engine_url)?;
    let worker = start_worker(folder, &url)?;
    Ok(Servers {
        cluster,
        engine: Some(engine),
        worker: Some(worker),
        agent: api(&engine_url, Some(agent), None)?,
        admin: api(&engine_url, Some(admin), None)?,
    })
}

fn start_engine(
    folder: &std::path::Path,
    url: &SecretString,
    engine_url: &str,
) -> Result<Process, CliError> {
    let listen = engine_url.trim_start_matches("http://");
    let args = ["engine", "--listen", listen, "--http-listen", "127.0.0.1:0"];
    let environment = database(url, "undolog_app");
    Process::start("engine", folder, args.map(OsString::from).to_vec(), environment)
}

fn start_worker(folder: &std::path::Path, url: &SecretString) -> Result<Process, CliError> {
    let args = ["worker", "--http-listen", "127.0.0.1:0", "--allow-egress", "127.0.0.0/8"];
    let environment = database(url, "undolog_worker");
    Process::start("worker", folder, args.map(OsString::from).to_vec(), environment)
}

/// The database goes through the environment: arguments are for everybody to see.
fn database(url: &SecretString, role: &str) -> Vec<(&'static str, String)> {
    vec![
        ("DATABASE_URL", url.expose_secret().to_owned()),
        ("UNDOLOG_DATABASE_ROLE", role.to_owned()),
        ("UNDOLOG_LOG_FORMAT", "text".to_owned()),
    ]
}

/// A port that is free now; the engine keeps it over its restarts.
fn free_port() -> Result<u16, CliError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    listener
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| CliError::Failed(format!("there is no free port: {error}")))
}

/// Asks until the engine answers, or has ended.
async fn wait_for_engine(servers: &mut Servers) -> Result<(), CliError> {
    let admin = servers.admin.clone();
    let answered = patient(|| async {
        let request = ListToolsRequest { org_id: admin.org(), ..ListToolsRequest::default() };
        admin.registry().list_tools(admin.request(request)).await?;
        Ok(())
    });
    tokio::pin!(answered);
    loop {
        tokio::select! {
            answer = &mut answered => return answer,
            () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {
                for process in [&mut servers.engine, &mut servers.worker].into_iter().flatten() {
                    if let Some(status) = process.ended() {
                        return Err(CliError::Failed(format!("a process ended with {status}")));
                    }
                }
            }
        }
    }
}
