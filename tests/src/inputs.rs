//! Registrations that a test changes only where it is about something.

use serde_json::{Value, json};
use undolog_core::Tier;
use undolog_store::registry::{CompensationInput, ToolInput};

/// A compensation over HTTP that everybody may bind to, with more fields of its body.
pub fn compensation(name: &str, more: &Value) -> CompensationInput {
    let mut body = json!({
        "kind": "http", "method": "POST", "endpoint": "https://undo.example/undo",
    });
    for (key, value) in more.as_object().expect("an object") {
        body[key] = value.clone();
    }
    CompensationInput {
        fn_name: name.into(),
        fn_version: String::new(),
        description: "undoes it".into(),
        fn_body: body.to_string().into_bytes(),
        args_schema: Vec::new(),
        max_retries: None,
        retry_backoff_ms: None,
        open: true,
        concurrency_max: None,
        rate_per_minute: None,
        result_from: String::new(),
    }
}

/// A tool that takes any arguments.
pub fn tool(name: &str, tier: Tier) -> ToolInput {
    ToolInput {
        tool_name: name.into(),
        tool_version: String::new(),
        tier,
        irreversibility_reason: String::new(),
        compensation_ref: String::new(),
        tool_schema: b"{}".to_vec(),
        risk_tags: Vec::new(),
        estimated_impact: String::new(),
        project_id: None,
        idempotent: false,
        grant_lease_ms: 0,
        max_execution_ms: 0,
        allowed_compensations: Vec::new(),
        approval_timeout_seconds: 0,
        auto_approve_on_timeout: None,
        approval_quorum: 0,
        requester_may_approve: None,
        probe: Vec::new(),
        upstream: Vec::new(),
        execute_on_approval: None,
        compensation_args: Vec::new(),
        caller_args: true,
    }
}
