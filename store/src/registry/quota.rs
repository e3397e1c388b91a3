//! How much of the registry one agent may fill, and how fast it may change it.
//!
//! Each change makes every process read the organisation's registrations again, and each version of
//! a name is read with the others.

use undolog_core::{
    limits::{
        AGENT_CHANGES_PER_MINUTE_MAX, AGENT_TOOL_BYTES_MAX, AGENT_TOOL_VERSIONS_MAX,
        AGENT_VERSIONS_PER_TOOL_MAX,
    },
    reason::{Reason, Refusal},
};

use crate::{error::StepError, tenant::Tenant};

/// Checks what this principal has registered, its newest registration included.
pub(super) async fn check_agent(
    tx: &mut Tenant,
    principal: &str,
    tool_name: &str,
) -> Result<(), StepError> {
    if !crate::guard!("registry.quota") {
        return Ok(());
    }
    let org_id = tx.org_id();
    let (all, of_tool, bytes, recent): (i64, i64, i64, i64) =
        sqlx::query_as(include_str!("../../sql/registry_quota.sql"))
            .bind(org_id)
            .bind(principal)
            .bind(tool_name)
            .fetch_one(tx.conn())
            .await?;
    let limits = [
        ("versions of tools", all, AGENT_TOOL_VERSIONS_MAX),
        ("versions of this tool", of_tool, AGENT_VERSIONS_PER_TOOL_MAX),
        ("bytes of schemas", bytes, AGENT_TOOL_BYTES_MAX),
    ];
    for (what, count, most) in limits {
        if count > most {
            let why = format!("{principal} may register at most {most} {what}");
            return Err(Refusal::because(Reason::LimitExceeded, why).with("limit", most).into());
        }
    }
    if recent > AGENT_CHANGES_PER_MINUTE_MAX {
        let most = AGENT_CHANGES_PER_MINUTE_MAX;
        let why = format!("{principal} may change the registry at most {most} times a minute");
        return Err(Refusal::because(Reason::RateLimited, why).with("limit", most).into());
    }
    Ok(())
}
