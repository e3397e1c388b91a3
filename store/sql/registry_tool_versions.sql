-- Reads the active versions of one tool, without their schemas.
-- Promise: only rows of the organisation. Lock: none. Index: undolog_tool_registry_unique.
SELECT tool_id, tool_version, tier::text AS tier, irreversibility_reason, compensation_ref,
  risk_tags, estimated_impact, idempotent, grant_lease_ms, max_execution_ms,
  allowed_compensations, project_id, upstream::text AS upstream,
  compensation_args::text AS compensation_args, caller_args
FROM undolog_tool_registry
WHERE org_id = $1 AND tool_name = $2 AND is_active
