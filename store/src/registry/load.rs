//! Reads registrations for the steps that judge a call by them.

use std::{str::FromStr as _, sync::Arc};

use sqlx::FromRow;
use undolog_core::{
    Tier,
    fn_body::FnBody,
    json::{canonical, from_stored},
    reason::Reason,
    version::{effective_tier, newest_by},
};
use uuid::Uuid;

use super::{
    CompensationBundle, ToolBundle,
    apart::{self, Form},
    cache::Key,
    schema::Schema,
};
use crate::{error::StepError, gate::Limits, tenant::Tenant};

/// One active version of a tool, without its schema.
#[derive(Debug, Clone, FromRow)]
struct ToolVersion {
    tool_id: Uuid,
    tool_version: String,
    tier: String,
    irreversibility_reason: Option<String>,
    compensation_ref: Option<String>,
    risk_tags: Vec<String>,
    estimated_impact: Option<String>,
    idempotent: bool,
    grant_lease_ms: Option<i64>,
    max_execution_ms: Option<i64>,
    allowed_compensations: Vec<String>,
    project_id: Option<Uuid>,
    upstream: Option<String>,
    compensation_args: Option<String>,
    caller_args: bool,
}

impl ToolVersion {
    fn tier(&self) -> Result<Tier, StepError> {
        Tier::from_str(&self.tier).map_err(|error| StepError::Corrupt(error.to_string()))
    }
}

/// The tool of this name and version as a call is judged by; the version `""` means the newest
/// active one. `None`: there is no such active version, or its name's tier asks for a reason that
/// nobody gave.
pub async fn tool(
    tx: &mut Tenant,
    epoch: i64,
    name: &str,
    version: &str,
) -> Result<Option<Arc<ToolBundle>>, StepError> {
    let store = tx.store();
    let version_asked = (!version.is_empty()).then(|| version.to_owned());
    let key = Key { org_id: tx.org_id(), name: name.to_owned(), version: version_asked };
    if let Some(kept) = store.registry().tool(&key, epoch) {
        return Ok(Some(kept));
    }
    let Some(bundle) = read_tool(tx, name, version).await? else { return Ok(None) };
    let bundle = Arc::new(bundle);
    store.registry().keep_tool(key, epoch, Arc::clone(&bundle));
    Ok(Some(bundle))
}

async fn read_tool(
    tx: &mut Tenant,
    name: &str,
    version: &str,
) -> Result<Option<ToolBundle>, StepError> {
    // A name with NUL cannot exist, and Postgres would refuse the parameter.
    if name.contains('\0') || version.contains('\0') {
        return Ok(None);
    }
    let org_id = tx.org_id();
    let versions: Vec<ToolVersion> =
        sqlx::query_as(include_str!("../../sql/registry_tool_versions.sql"))
            .bind(org_id)
            .bind(name)
            .fetch_all(tx.conn())
            .await?;
    let named = if version.is_empty() {
        newest_by(&versions, |row| &row.tool_version)
    } else {
        versions.iter().find(|row| row.tool_version == version)
    };
    let Some(named) = named.cloned() else { return Ok(None) };
    let text: String = sqlx::query_scalar(
        "SELECT tool_schema::text FROM undolog_tool_registry WHERE org_id = $1 AND tool_id = $2",
    )
    .bind(org_id)
    .bind(named.tool_id)
    .fetch_one(tx.conn())
    .await?;
    let input = apart::compiled(tx, Form::StoredTool, &text)?.map_err(|error| {
        // An earlier version of this program took it.
        let why = format!("the schema of {name} is refused now, register it again: {error}");
        StepError::refuse(Reason::ToolNotRegistered, why)
    })?;
    judged(name, named, &versions, input)
}

/// The named version, raised to its name's tier: what that tier needs and the version lacks comes
/// from the newest active version of that tier.
fn judged(
    name: &str,
    named: ToolVersion,
    versions: &[ToolVersion],
    input: Arc<Schema>,
) -> Result<Option<ToolBundle>, StepError> {
    let tiers = versions.iter().map(ToolVersion::tier).collect::<Result<Vec<_>, _>>()?;
    let own_tier = named.tier()?;
    let tier = effective_tier(tiers.iter().copied()).unwrap_or(own_tier);
    let of_tier = versions.iter().zip(&tiers).filter(|(_, t)| **t == tier).map(|(row, _)| row);
    let donor = newest_by(of_tier, |row| &row.tool_version).filter(|_| tier != own_tier);
    let mut bundle = ToolBundle {
        tool_id: named.tool_id,
        tool_name: name.to_owned(),
        tool_version: named.tool_version,
        tier,
        irreversibility_reason: named.irreversibility_reason.filter(|r| !r.trim().is_empty()),
        risk_tags: named.risk_tags,
        estimated_impact: named.estimated_impact,
        compensation_ref: named.compensation_ref,
        allowed_compensations: named.allowed_compensations,
        idempotent: named.idempotent,
        grant_lease_ms: named.grant_lease_ms,
        max_execution_ms: named.max_execution_ms,
        project_id: named.project_id,
        upstream: named.upstream,
        compensation_args: named.compensation_args,
        caller_args: named.caller_args,
        input,
    };
    // A tag can forbid an auto-approval, so none of any version may get lost.
    for tag in versions.iter().flat_map(|version| &version.risk_tags) {
        if !bundle.risk_tags.contains(tag) && crate::guard!("registry.tags") {
            bundle.risk_tags.push(tag.clone());
        }
    }
    if let Some(donor) = donor {
        raise(&mut bundle, donor);
    }
    let lacks_reason = tier == Tier::Irreversible && bundle.irreversibility_reason.is_none();
    Ok((!lacks_reason).then_some(bundle))
}

fn raise(bundle: &mut ToolBundle, donor: &ToolVersion) {
    if bundle.irreversibility_reason.is_none() {
        let reason = donor.irreversibility_reason.clone();
        bundle.irreversibility_reason = reason.filter(|r| !r.trim().is_empty());
    }
    if bundle.compensation_ref.is_none() {
        bundle.compensation_ref.clone_from(&donor.compensation_ref);
        bundle.allowed_compensations.clone_from(&donor.allowed_compensations);
        bundle.compensation_args.clone_from(&donor.compensation_args);
        bundle.caller_args = donor.caller_args;
    }
    if bundle.estimated_impact.is_none() {
        bundle.estimated_impact.clone_from(&donor.estimated_impact);
    }
}

#[derive(Debug, FromRow)]
struct CompensationVersion {
    compensation_id: Uuid,
    fn_version: String,
    fn_body: String,
    args_schema: String,
    max_retries: i32,
    retry_backoff_ms: i32,
    open: bool,
    is_active: bool,
    concurrency_max: Option<i32>,
    rate_per_minute: Option<i32>,
    result_from: String,
}

/// The compensation of this name. With a version: that one, active or not, since an entry of the
/// undo stack is called by the version that it was bound to. Without: the newest active one.
pub async fn compensation(
    tx: &mut Tenant,
    epoch: i64,
    fn_name: &str,
    fn_version: Option<&str>,
) -> Result<Option<Arc<CompensationBundle>>, StepError> {
    let store = tx.store();
    let version = fn_version.map(str::to_owned);
    let key = Key { org_id: tx.org_id(), name: fn_name.to_owned(), version };
    if let Some(kept) = store.registry().compensation(&key, epoch) {
        return Ok(Some(kept));
    }
    let Some(bundle) = read_compensation(tx, fn_name, fn_version).await? else { return Ok(None) };
    let bundle = Arc::new(bundle);
    store.registry().keep_compensation(key, epoch, Arc::clone(&bundle));
    Ok(Some(bundle))
}

async fn read_compensation(
    tx: &mut Tenant,
    fn_name: &str,
    fn_version: Option<&str>,
) -> Result<Option<CompensationBundle>, StepError> {
    if fn_name.contains('\0') || fn_version.is_some_and(|v| v.contains('\0')) {
        return Ok(None);
    }
    let version = match fn_version {
        Some(version) => version.to_owned(),
        None => match newest_active_version(tx, fn_name).await? {
            Some(version) => version,
            None => return Ok(None),
        },
    };
    let org_id = tx.org_id();
    let row: Option<CompensationVersion> =
        sqlx::query_as(include_str!("../../sql/registry_compensation_version.sql"))
            .bind(org_id)
            .bind(fn_name)
            .bind(version)
            .fetch_optional(tx.conn())
            .await?;
    row.map(|row| parse_compensation(tx, fn_name, row)).transpose()
}

async fn newest_active_version(
    tx: &mut Tenant,
    fn_name: &str,
) -> Result<Option<String>, StepError> {
    let org_id = tx.org_id();
    let versions: Vec<String> = sqlx::query_scalar(
        "SELECT fn_version FROM undolog_compensation_registry \
         WHERE org_id = $1 AND fn_name = $2 AND is_active",
    )
    .bind(org_id)
    .bind(fn_name)
    .fetch_all(tx.conn())
    .await?;
    Ok(undolog_core::version::newest(versions.iter().map(String::as_str)).map(str::to_owned))
}

fn parse_compensation(
    tx: &Tenant,
    fn_name: &str,
    row: CompensationVersion,
) -> Result<CompensationBundle, StepError> {
    let corrupt = |what: &str, error: String| {
        StepError::Corrupt(format!("{what} of compensation {fn_name} {}: {error}", row.fn_version))
    };
    let node =
        from_stored(&row.fn_body, None).map_err(|error| corrupt("fn_body", error.to_string()))?;
    let fn_body = FnBody::parse(&node).map_err(|error| corrupt("fn_body", error.to_string()))?;
    let args = apart::compiled(tx, Form::Stored, &row.args_schema)?
        .map_err(|error| corrupt("schema", error))?;
    let result_from = row
        .result_from
        .parse()
        .map_err(|_| corrupt("result_from", "must be any or executor".to_owned()))?;
    Ok(CompensationBundle {
        compensation_id: row.compensation_id,
        fn_name: fn_name.to_owned(),
        fn_version: row.fn_version,
        fn_body,
        fn_hash: *blake3::hash(canonical(&node).as_bytes()).as_bytes(),
        max_retries: row.max_retries,
        retry_backoff_ms: row.retry_backoff_ms,
        open: row.open,
        is_active: row.is_active,
        result_from,
        limits: Limits {
            concurrency_max: row.concurrency_max,
            rate_per_minute: row.rate_per_minute,
        },
        args,
    })
}
