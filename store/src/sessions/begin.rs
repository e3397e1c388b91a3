//! Begin: a session with a lease of its own.

use chrono::{DateTime, Duration, Utc};
use serde_json::json;
use undolog_core::{
    json::{Node, parse_lossless},
    limits,
    reason::{Reason, Refusal},
    state::{SessionEvent, SessionState, Subject},
};
use uuid::Uuid;

use crate::{
    error::{Decided, StepError},
    payload::{self, refuse_nul},
    projects,
    session::{LockedSession, not_found},
    step::{Caller, Step},
    tenant::Tenant,
};

/// Begins a session, or finds the one that the same principal has begun.
#[derive(Debug, Clone)]
pub struct Begin {
    /// Who calls: the session's owner from now on.
    pub caller: Caller,
    /// The caller's id for it; `None`: the engine makes one.
    pub session_id: Option<Uuid>,
    /// For people.
    pub agent_name: String,
    /// A correlation id of the caller's.
    pub external_run_id: String,
    /// A project's id or name; empty: none.
    pub project: String,
    /// A JSON object; empty means `{}`.
    pub metadata: Vec<u8>,
    /// At least 300; 0 means 300.
    pub lease_seconds: u32,
    /// `rollback`, `continue`, or empty for the organisation's policy.
    pub on_tool_failure: String,
    /// `halt`, `rollback`, `continue`, or empty for the organisation's policy.
    pub on_rejection: String,
    /// `rollback`, `hold`, or empty for the organisation's policy.
    pub on_unknown: String,
}

/// A begun session.
#[derive(Debug, Clone)]
pub struct Begun {
    /// Its id.
    pub session_id: Uuid,
    /// Its state.
    pub state: SessionState,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it is lost unless one of its RPCs comes; `None` for an implicit session.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// The same principal had begun it before.
    pub existed: bool,
}

impl Step for Begin {
    type Reply = Begun;
    const NAME: &'static str = "begin";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    fn session_id(&self) -> Option<Uuid> {
        self.session_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Begun>, StepError> {
        let lease_seconds = self.check()?;
        let node = self.metadata()?;
        let session_id = self.session_id.unwrap_or_else(Uuid::now_v7);
        let project_id = projects::resolve(tx, &self.project).await?;
        let bytes = if self.metadata.is_empty() { b"{}" } else { self.metadata.as_slice() };
        let stored = payload::store(&node, bytes);
        let org_id = tx.org_id();
        let created = sqlx::query(include_str!("../../sql/session_begin.sql"))
            .bind(session_id)
            .bind(org_id)
            .bind(&self.caller.principal)
            .bind(self.caller.via_proxy)
            .bind(project_id)
            .bind(none_if_empty(&self.agent_name))
            .bind(none_if_empty(&self.external_run_id))
            .bind(stored.jsonb_text)
            .bind(stored.raw)
            .bind(i64::from(lease_seconds) * 1000)
            .bind(none_if_empty(&self.on_tool_failure))
            .bind(none_if_empty(&self.on_rejection))
            .bind(none_if_empty(&self.on_unknown))
            .execute(tx.conn())
            .await?
            .rows_affected();
        let session = LockedSession::lock(tx, session_id, &self.caller).await?;
        let mut session = session
            .filter(|session| session.row.principal == self.caller.principal)
            .ok_or_else(|| not_found(session_id))?;
        let existed = created == 0;
        if existed {
            session.touched_by(&self.caller);
        } else {
            session.record(
                Subject::Session,
                session_id,
                SessionEvent::Begun.as_str(),
                None,
                SessionState::Active.as_str(),
                None,
                &self.caller.principal,
                json!({"lease_seconds": lease_seconds}),
            );
        }
        let begun = Begun {
            session_id,
            state: session.state(),
            started_at: session.row.started_at,
            lease_expires_at: session.lease_end(),
            existed,
        };
        session.save(tx).await?;
        Ok(Ok(begun))
    }
}

impl Begin {
    fn check(&self) -> Result<u32, StepError> {
        for (field, text) in [
            ("agent_name", &self.agent_name),
            ("external_run_id", &self.external_run_id),
            ("project", &self.project),
        ] {
            refuse_nul(field, text)?;
            if text.len() > limits::TOOL_NAME_BYTES_MAX {
                return Err(Refusal::because(
                    Reason::LimitExceeded,
                    format!("{field} is too long"),
                )
                .with("limit_bytes", limits::TOOL_NAME_BYTES_MAX)
                .into());
            }
        }
        one_of("on_tool_failure", &self.on_tool_failure, &["", "rollback", "continue"])?;
        one_of("on_rejection", &self.on_rejection, &["", "halt", "rollback", "continue"])?;
        one_of("on_unknown", &self.on_unknown, &["", "rollback", "hold"])?;
        match self.lease_seconds {
            0 => Ok(limits::SESSION_LEASE_SECONDS_MIN),
            seconds if seconds < limits::SESSION_LEASE_SECONDS_MIN => Err(StepError::refuse(
                Reason::InvalidArgument,
                format!("lease_seconds must be at least {}", limits::SESSION_LEASE_SECONDS_MIN),
            )),
            seconds if seconds > limits::SESSION_LEASE_SECONDS_MAX => Err(StepError::refuse(
                Reason::InvalidArgument,
                format!("lease_seconds must be at most {}", limits::SESSION_LEASE_SECONDS_MAX),
            )),
            seconds => Ok(seconds),
        }
    }

    fn metadata(&self) -> Result<Node, StepError> {
        if self.metadata.len() > limits::AGENT_CONTEXT_BYTES_MAX {
            return Err(StepError::refuse(Reason::LimitExceeded, "metadata is too large"));
        }
        let bytes = if self.metadata.is_empty() { b"{}" } else { self.metadata.as_slice() };
        let node = parse_lossless(bytes).map_err(|error| {
            StepError::refuse(Reason::InvalidArgument, format!("metadata: {error}"))
        })?;
        match node {
            Node::Object(_) => Ok(node),
            _ => Err(StepError::refuse(Reason::InvalidArgument, "metadata must be an object")),
        }
    }
}

fn one_of(field: &str, text: &str, allowed: &[&str]) -> Result<(), StepError> {
    if allowed.contains(&text) {
        return Ok(());
    }
    let names = allowed[1..].join(", ");
    Err(StepError::refuse(Reason::InvalidArgument, format!("{field} is one of {names}")))
}

fn none_if_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

impl LockedSession {
    /// When the session is lost unless one of its RPCs comes.
    pub fn lease_end(&self) -> Option<DateTime<Utc>> {
        let end = self.row.lease_renewed_at? + Duration::milliseconds(self.row.lease_ms?);
        Some(self.row.lease_hold_until.map_or(end, |hold| hold.max(end)))
    }
}
