//! RegisterCompensation: a version of a compensation is added, or changed.

use undolog_core::{
    fn_body::FnBody,
    limits::{BACKOFF_MS_MAX, DEFAULT_MAX_RETRIES, DEFAULT_RETRY_BACKOFF_MS, RETRIES_MAX},
    reason::Reason,
    state::ResultFrom,
};
use uuid::Uuid;

use super::{
    apart::{self, Form},
    list::{self, CompensationRow},
    register_tool::Registered,
    rules::{self, invalid},
};
use crate::{
    error::{Decided, StepError},
    step::{Caller, Step},
    tenant::Tenant,
};

/// A compensation as a caller describes it.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the wire's Compensation")]
pub struct CompensationInput {
    pub fn_name: String,
    pub fn_version: String,
    pub description: String,
    pub fn_body: Vec<u8>,
    pub args_schema: Vec<u8>,
    pub max_retries: Option<u32>,
    pub retry_backoff_ms: Option<u32>,
    pub open: bool,
    pub concurrency_max: Option<u32>,
    pub rate_per_minute: Option<u32>,
    pub result_from: String,
}

/// Registers a compensation. Who may call this decides what is called on the world's side, so the
/// role table gives it to administrators only.
#[derive(Debug, Clone)]
pub struct RegisterCompensation {
    /// Who registers it.
    pub caller: Caller,
    /// What is registered.
    pub compensation: CompensationInput,
}

/// What is stored, after the checks.
struct Checked {
    version: String,
    fn_body: String,
    args_schema: String,
    max_retries: i32,
    retry_backoff_ms: i32,
    concurrency_max: Option<i32>,
    rate_per_minute: Option<i32>,
    result_from: ResultFrom,
}

impl Step for RegisterCompensation {
    type Reply = Registered<CompensationRow>;
    const NAME: &'static str = "register_compensation";

    fn org_id(&self) -> Uuid {
        self.caller.org_id
    }

    async fn run(&self, tx: &mut Tenant) -> Result<Decided<Self::Reply>, StepError> {
        let checked = self.check_form(tx)?;
        super::lock_org(tx).await?;
        let changed = self.upsert(tx, &checked).await?;
        if changed.is_some() {
            crate::crash_point!("register_compensation.before_epoch");
            super::raise_epoch(tx).await?;
        }
        let name = &self.compensation.fn_name;
        let row = list::require(tx, name, &checked.version).await?;
        Ok(Ok(Registered { row, created: changed == Some(true) }))
    }
}

impl RegisterCompensation {
    fn check_form(&self, tx: &Tenant) -> Result<Checked, StepError> {
        let given = &self.compensation;
        rules::check_name("the compensation's name", &given.fn_name)?;
        let version = rules::version_or_default(&given.fn_version)?;
        rules::check_text("the description", &given.description)?;
        let body = rules::parse_json("fn_body", &given.fn_body)?
            .ok_or_else(|| invalid("fn_body is missing"))?;
        FnBody::parse(&body).map_err(|error| invalid(format!("fn_body: {error}")))?;
        let schema = rules::parse_json("args_schema", &given.args_schema)?
            .unwrap_or_else(undolog_core::json::Node::empty_object);
        apart::compiled(tx, Form::New, &schema.to_text_exact())?
            .map_err(|error| invalid(format!("args_schema does not compile: {error}")))?;
        let max_retries = given.max_retries.unwrap_or(DEFAULT_MAX_RETRIES);
        let backoff_ms = given.retry_backoff_ms.map_or(DEFAULT_RETRY_BACKOFF_MS, u64::from);
        Ok(Checked {
            version,
            fn_body: rules::jsonb_text("fn_body", &body)?,
            args_schema: rules::jsonb_text("args_schema", &schema)?,
            max_retries: bounded("max_retries", max_retries.into(), RETRIES_MAX.into())?,
            retry_backoff_ms: bounded("retry_backoff_ms", backoff_ms, BACKOFF_MS_MAX)?,
            concurrency_max: limit("concurrency_max", given.concurrency_max, 10_000)?,
            rate_per_minute: limit("rate_per_minute", given.rate_per_minute, 1_000_000)?,
            result_from: result_from(&given.result_from)?,
        })
    }

    /// Writes the version; `None` when it stood like this already, else whether it is new.
    async fn upsert(&self, tx: &mut Tenant, checked: &Checked) -> Result<Option<bool>, StepError> {
        let given = &self.compensation;
        let org_id = tx.org_id();
        Ok(sqlx::query_scalar(include_str!("../../sql/registry_compensation_upsert.sql"))
            .bind(org_id)
            .bind(&given.fn_name)
            .bind(&checked.version)
            .bind(&given.description)
            .bind(&checked.fn_body)
            .bind(&checked.args_schema)
            .bind(checked.max_retries)
            .bind(checked.retry_backoff_ms)
            .bind(given.open)
            .bind(&self.caller.principal)
            .bind(checked.concurrency_max)
            .bind(checked.rate_per_minute)
            .bind(checked.result_from.as_str())
            .fetch_optional(tx.conn())
            .await?)
    }
}

fn result_from(given: &str) -> Result<ResultFrom, StepError> {
    if given.is_empty() {
        return Ok(ResultFrom::Any);
    }
    given.parse().map_err(|_| invalid("result_from must be any or executor"))
}

/// A limit; zero is none.
fn limit(what: &str, given: Option<u32>, most: u64) -> Result<Option<i32>, StepError> {
    given.filter(|given| *given > 0).map(|given| bounded(what, given.into(), most)).transpose()
}

fn bounded(what: &str, given: u64, most: u64) -> Result<i32, StepError> {
    i32::try_from(given).ok().filter(|_| given <= most).ok_or_else(|| {
        StepError::refuse(Reason::LimitExceeded, format!("{what} is larger than {most}"))
    })
}
