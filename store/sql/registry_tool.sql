-- Reads one version of a tool, active or not.
-- Promise: only a row of the organisation. Lock: none. Index: undolog_tool_registry_unique.
SELECT tool_id, tool_name, tool_version, tier::text AS tier, irreversibility_reason,
  compensation_ref, tool_schema::text AS tool_schema, risk_tags, estimated_impact, is_active,
  project_id, idempotent, grant_lease_ms, max_execution_ms, allowed_compensations, registered_at,
  approval_timeout_seconds, auto_approve_on_timeout, approval_quorum, requester_may_approve,
  probe::text AS probe, upstream::text AS upstream, execute_on_approval,
  compensation_args::text AS compensation_args, caller_args,
  updated_at, 1::bigint AS matched
FROM undolog_tool_registry
WHERE org_id = $1 AND tool_name = $2 AND tool_version = $3
