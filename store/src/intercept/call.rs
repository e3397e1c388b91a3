//! The call as the caller sent it, checked before a connection is taken.

use std::str::FromStr as _;

use undolog_core::{
    Tier,
    json::{Node, canonical, parse_strict},
    limits,
    reason::{Reason, Refusal},
    signature::{Signature, call_signature},
};
use uuid::Uuid;

use super::{DescriptorInput, StepRef};
use crate::{error::StepError, payload::refuse_nul, registry::ToolBundle, step::Caller};

/// An Intercept as it comes from the wire.
#[derive(Debug, Clone)]
pub struct InterceptInput {
    /// Who calls.
    pub caller: Caller,
    /// The session; it is begun implicitly when it does not exist.
    pub session_id: Uuid,
    /// The registered tool, if the caller knows it.
    pub tool_id: Option<Uuid>,
    /// The tool's name.
    pub tool_name: String,
    /// The tool's version; empty: the newest active one.
    pub tool_version: String,
    /// Where in the session.
    pub step: StepRef,
    /// JSON; empty means `{}`.
    pub args: Vec<u8>,
    /// The compensation that the request names.
    pub compensation: Option<DescriptorInput>,
    /// JSON for the approver.
    pub agent_context: Vec<u8>,
    /// One per logical call: makes a retry harmless.
    pub grant_token: Option<String>,
    /// Edited arguments are welcome.
    pub accepts_approved_args: bool,
    /// The caller renews its grants.
    pub heartbeats: bool,
    /// A proxy asks that runs upstream endpoints: for a tool that has one, this takes the place of
    /// `grant_token`.
    pub executor_token: Option<String>,
    /// Reports on what this call is granted carry `executor_token`.
    pub reports_with_token: bool,
}

/// An Intercept whose parts were read and checked.
#[derive(Debug, Clone)]
pub struct Intercept {
    pub(super) input: InterceptInput,
    pub(super) args: Node,
    pub(super) canonical: String,
    pub(super) supplied: Option<Signature>,
    /// Callers that are told what this one is told, this one included.
    pub(super) served: i16,
}

impl Intercept {
    /// Reads and checks a call. Nothing is written for one that is refused here.
    pub fn new(mut input: InterceptInput) -> Result<Self, StepError> {
        if input.args.len() > limits::ARGS_BYTES_MAX {
            return Err(Refusal::because(Reason::LimitExceeded, "args are too large")
                .with("limit_bytes", limits::ARGS_BYTES_MAX)
                .into());
        }
        if input.agent_context.len() > limits::AGENT_CONTEXT_BYTES_MAX {
            return Err(Refusal::because(Reason::LimitExceeded, "agent_context is too large")
                .with("limit_bytes", limits::AGENT_CONTEXT_BYTES_MAX)
                .into());
        }
        if input.tool_name.is_empty() || input.tool_name.len() > limits::TOOL_NAME_BYTES_MAX {
            return Err(StepError::refuse(
                Reason::InvalidArgument,
                "tool_name must have 1 to 256 bytes",
            ));
        }
        refuse_nul("tool_name", &input.tool_name)?;
        refuse_nul("tool_version", &input.tool_version)?;
        for token in input.grant_token.iter().chain(&input.executor_token) {
            refuse_nul("grant_token", token)?;
            if token.len() > limits::GRANT_TOKEN_BYTES_MAX {
                return Err(StepError::refuse(
                    Reason::InvalidArgument,
                    "grant_token must have at most 128 bytes",
                ));
            }
        }
        if input.args.is_empty() {
            input.args = b"{}".to_vec();
        }
        let args = parse_strict(&input.args)
            .map_err(|error| StepError::refuse(Reason::ArgsInvalid, error.to_string()))?;
        let canonical = canonical(&args);
        let supplied = check_step(&input.step)?;
        Ok(Self { input, args, canonical, supplied, served: 1 })
    }

    /// What tells this caller's grant from another one's. A call that proxies run is asked for
    /// once by each of them, whatever token the caller behind them repeats: the answer to a proxy
    /// that went away must never make another one run it.
    pub(super) fn token(&self, has_upstream: bool) -> Option<&str> {
        let executor = self
            .input
            .executor_token
            .as_deref()
            .filter(|_| has_upstream && crate::guard!("intercept.executor_token"));
        executor.or(self.input.grant_token.as_deref()).filter(|token| !token.is_empty())
    }

    /// The token without which no report of this grant is taken: a proxy makes the call.
    pub(super) fn reporting_token(&self, has_upstream: bool) -> Option<&str> {
        let token = self.input.executor_token.as_deref().filter(|token| !token.is_empty());
        token.filter(|_| has_upstream && self.input.reports_with_token)
    }

    /// A proxy asks, which makes the call itself where the tool has an endpoint.
    pub(super) fn is_of_executor(&self) -> bool {
        self.input.executor_token.as_deref().is_some_and(|token| !token.is_empty())
    }

    /// What the call is.
    pub fn input(&self) -> &InterceptInput {
        &self.input
    }

    /// The signature at a step.
    pub(super) fn signature_at(&self, step_index: i32) -> Signature {
        let step = u32::try_from(step_index).unwrap_or_default();
        call_signature(self.input.session_id, step, &self.input.tool_name, &self.canonical)
    }

    pub(super) fn numbering(&self) -> &'static str {
        match self.input.step {
            StepRef::Index { .. } => "index",
            StepRef::Key(_) => "key",
        }
    }
}

fn check_step(step: &StepRef) -> Result<Option<Signature>, StepError> {
    match step {
        StepRef::Index { step_index, signature } => {
            if *step_index > limits::STEP_INDEX_MAX {
                return Err(StepError::refuse(Reason::StepInvalid, "step_index is too large"));
            }
            let parse = |text: &String| {
                Signature::from_str(text).map_err(|error| {
                    StepError::refuse(Reason::SignatureMismatch, error.to_string())
                })
            };
            signature.as_ref().filter(|text| !text.is_empty()).map(parse).transpose()
        }
        StepRef::Key(key) => {
            if key.is_empty() || key.len() > limits::STEP_KEY_BYTES_MAX {
                return Err(StepError::refuse(
                    Reason::StepInvalid,
                    "step_key must have 1 to 256 bytes",
                ));
            }
            refuse_nul("step_key", key)?;
            Ok(None)
        }
    }
}

/// What a new row, a new attempt or a grant after approval is judged by.
#[derive(Debug, Clone)]
pub(super) struct JudgedTool {
    pub(super) tool_id: Option<Uuid>,
    pub(super) version: String,
    pub(super) tier: Tier,
    pub(super) reason: String,
    pub(super) risk_tags: Vec<String>,
    pub(super) estimated_impact: Option<String>,
    pub(super) compensation_ref: Option<String>,
    pub(super) allowed_compensations: Vec<String>,
    pub(super) idempotent: bool,
    pub(super) grant_lease_ms: Option<i64>,
    pub(super) max_execution_ms: Option<i64>,
    pub(super) has_upstream: bool,
    pub(super) compensation_args: Option<String>,
    pub(super) caller_args: bool,
}

impl JudgedTool {
    pub(super) fn registered(tool: &ToolBundle) -> Self {
        Self {
            tool_id: Some(tool.tool_id),
            version: tool.tool_version.clone(),
            tier: tool.tier,
            reason: tool.irreversibility_reason.clone().unwrap_or_default(),
            risk_tags: tool.risk_tags.clone(),
            estimated_impact: tool.estimated_impact.clone(),
            compensation_ref: tool.compensation_ref.clone(),
            allowed_compensations: tool.allowed_compensations.clone(),
            idempotent: tool.idempotent,
            grant_lease_ms: tool.grant_lease_ms,
            max_execution_ms: tool.max_execution_ms,
            has_upstream: tool.upstream.is_some(),
            compensation_args: tool.compensation_args.clone(),
            caller_args: tool.caller_args,
        }
    }

    /// The organisation's policy treats what it does not know as irreversible.
    pub(super) fn unregistered(input: &InterceptInput) -> Self {
        let version = if input.tool_version.is_empty() { "0.0.0" } else { &input.tool_version };
        Self {
            tool_id: None,
            version: version.to_owned(),
            tier: Tier::Irreversible,
            reason: format!("{} is not registered", input.tool_name),
            risk_tags: vec!["unregistered".to_owned()],
            estimated_impact: None,
            compensation_ref: None,
            allowed_compensations: Vec::new(),
            idempotent: false,
            grant_lease_ms: None,
            max_execution_ms: None,
            has_upstream: false,
            compensation_args: None,
            caller_args: false,
        }
    }
}
