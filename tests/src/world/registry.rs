//! Tools and compensations that the witness serves.

use serde_json::{Value, json};
use undolog_proto::v1::{Compensation, RegisterCompensationRequest, RegisterToolRequest, Tool};

use super::client::Client;
use crate::witness::Witness;

/// A compensation to be registered.
#[derive(Clone, Debug)]
pub struct CompensationSpec {
    /// Its name.
    pub name: String,
    /// Its body; an `endpoint` that begins with `/` is the witness's.
    pub fn_body: Value,
    /// Calls after the first one.
    pub max_retries: u32,
    /// Pause before the first retry.
    pub retry_backoff_ms: u32,
    /// Whether agents may bind their tools to it.
    pub open: bool,
}

/// A tool to be registered.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Its name; its forward call is `POST /do/{name}` of the witness.
    pub name: String,
    /// `safe`, `compensable` or `irreversible`.
    pub tier: String,
    /// A compensable tool's compensation.
    pub compensation: Option<CompensationSpec>,
    /// Whether running it again does no harm.
    pub idempotent: bool,
    /// Lease of its grants; 0: the default.
    pub grant_lease_ms: u32,
    /// Its input schema.
    pub schema: Value,
}

impl ToolSpec {
    /// A compensable tool `name`, undone by `POST /undo/{name}/{result.id}` of the witness.
    pub fn compensable(name: &str) -> Self {
        let fn_body = json!({
            "kind": "http",
            "method": "POST",
            "endpoint": format!("/undo/{name}/{{result.id}}"),
            "arg_mapping": {"note": "undo of {effect_id}", "args": "{args}"},
            "idempotency_key_header": "Idempotency-Key",
            "timeout_ms": 5000,
        });
        let compensation = CompensationSpec {
            name: format!("undo_{name}"),
            fn_body,
            max_retries: 3,
            retry_backoff_ms: 50,
            open: false,
        };
        Self { compensation: Some(compensation), ..Self::bare(name, "compensable") }
    }

    /// An irreversible tool.
    pub fn irreversible(name: &str) -> Self {
        Self::bare(name, "irreversible")
    }

    /// A safe tool.
    pub fn safe(name: &str) -> Self {
        Self::bare(name, "safe")
    }

    fn bare(name: &str, tier: &str) -> Self {
        Self {
            name: name.to_owned(),
            tier: tier.to_owned(),
            compensation: None,
            idempotent: false,
            grant_lease_ms: 0,
            schema: json!({"type": "object"}),
        }
    }

    /// Changes its compensation.
    #[must_use]
    pub fn undo(mut self, change: impl FnOnce(&mut CompensationSpec)) -> Self {
        change(self.compensation.as_mut().expect("a compensable tool"));
        self
    }

    /// Sets one key of its compensation's body.
    #[must_use]
    pub fn body(self, key: &str, value: Value) -> Self {
        self.undo(|compensation| compensation.fn_body[key] = value)
    }

    /// Sets retries and backoff of its compensation.
    #[must_use]
    pub fn retries(self, max_retries: u32, retry_backoff_ms: u32) -> Self {
        self.undo(|compensation| {
            compensation.max_retries = max_retries;
            compensation.retry_backoff_ms = retry_backoff_ms;
        })
    }

    /// Changes the tool.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Registers the compensation, then the tool.
    pub async fn register(self, client: &mut Client, witness: &Witness) {
        let mut registry = client.registry();
        let mut compensation_ref = String::new();
        if let Some(spec) = self.compensation {
            compensation_ref.clone_from(&spec.name);
            let request = RegisterCompensationRequest {
                org_id: String::new(),
                compensation: Some(spec.message(witness)),
            };
            registry.register_compensation(request).await.expect("register a compensation");
        }
        let reason = if self.tier == "irreversible" { "it cannot be undone" } else { "" };
        let tool = Tool {
            tool_name: self.name,
            tier: self.tier,
            compensation_ref,
            irreversibility_reason: reason.to_owned(),
            tool_schema: self.schema.to_string().into_bytes(),
            is_active: true,
            idempotent: self.idempotent,
            grant_lease_ms: self.grant_lease_ms,
            caller_args: true,
            ..Tool::default()
        };
        let request = RegisterToolRequest { org_id: String::new(), tool: Some(tool) };
        registry.register_tool(request).await.expect("register a tool");
    }
}

impl CompensationSpec {
    fn message(mut self, witness: &Witness) -> Compensation {
        let endpoint = self.fn_body["endpoint"].as_str().unwrap_or_default().to_owned();
        if endpoint.starts_with('/') {
            self.fn_body["endpoint"] = json!(witness.url(&endpoint));
        }
        Compensation {
            fn_name: self.name,
            description: "a compensation of the tests".to_owned(),
            fn_body: self.fn_body.to_string().into_bytes(),
            max_retries: Some(self.max_retries),
            retry_backoff_ms: Some(self.retry_backoff_ms),
            is_active: true,
            open: self.open,
            ..Compensation::default()
        }
    }
}
