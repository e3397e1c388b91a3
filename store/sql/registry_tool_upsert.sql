-- Writes one version of a tool; a row only when something changed.
-- Promise: true for a new version, false for a changed one, no row for one that stood like this. A
-- version that is out of use comes back only when the caller may do that ($24); a new one begins in
-- use or out of it ($23).
-- Lock: the organisation's row, held by the caller. Index: undolog_tool_registry_unique.
INSERT INTO undolog_tool_registry AS r (org_id, tool_name, tool_version, tier,
  irreversibility_reason, compensation_ref, tool_schema, risk_tags, estimated_impact, project_id,
  idempotent, grant_lease_ms, max_execution_ms, allowed_compensations, registered_by,
  approval_timeout_seconds, auto_approve_on_timeout, approval_quorum, requester_may_approve, probe,
  upstream, execute_on_approval, is_active, compensation_args, caller_args)
VALUES ($1, $2, $3, $4::text::undolog_tool_tier, $5, $6, $7::text::jsonb, $8, $9, $10, $11, $12,
  $13, $14, $15, $16, $17, $18, $19, $20::text::jsonb, $21::text::jsonb, $22, $23,
  $25::text::jsonb, $26)
ON CONFLICT ON CONSTRAINT undolog_tool_registry_unique DO UPDATE SET
  tier = EXCLUDED.tier, irreversibility_reason = EXCLUDED.irreversibility_reason,
  compensation_ref = EXCLUDED.compensation_ref, tool_schema = EXCLUDED.tool_schema,
  risk_tags = EXCLUDED.risk_tags, estimated_impact = EXCLUDED.estimated_impact,
  project_id = EXCLUDED.project_id, idempotent = EXCLUDED.idempotent,
  grant_lease_ms = EXCLUDED.grant_lease_ms, max_execution_ms = EXCLUDED.max_execution_ms,
  allowed_compensations = EXCLUDED.allowed_compensations, is_active = r.is_active OR $24,
  registered_by = EXCLUDED.registered_by, updated_at = clock_timestamp(),
  approval_timeout_seconds = EXCLUDED.approval_timeout_seconds,
  auto_approve_on_timeout = EXCLUDED.auto_approve_on_timeout,
  approval_quorum = EXCLUDED.approval_quorum,
  requester_may_approve = EXCLUDED.requester_may_approve, probe = EXCLUDED.probe,
  upstream = EXCLUDED.upstream, execute_on_approval = EXCLUDED.execute_on_approval,
  compensation_args = EXCLUDED.compensation_args, caller_args = EXCLUDED.caller_args
WHERE (r.tier, r.irreversibility_reason, r.compensation_ref, r.tool_schema, r.risk_tags,
    r.estimated_impact, r.project_id, r.idempotent, r.grant_lease_ms, r.max_execution_ms,
    r.allowed_compensations, r.is_active, r.approval_timeout_seconds,
    r.auto_approve_on_timeout, r.approval_quorum, r.requester_may_approve, r.probe,
    r.upstream, r.execute_on_approval, r.compensation_args, r.caller_args)
  IS DISTINCT FROM (EXCLUDED.tier, EXCLUDED.irreversibility_reason, EXCLUDED.compensation_ref,
    EXCLUDED.tool_schema, EXCLUDED.risk_tags, EXCLUDED.estimated_impact, EXCLUDED.project_id,
    EXCLUDED.idempotent, EXCLUDED.grant_lease_ms, EXCLUDED.max_execution_ms,
    EXCLUDED.allowed_compensations, r.is_active OR $24, EXCLUDED.approval_timeout_seconds,
    EXCLUDED.auto_approve_on_timeout, EXCLUDED.approval_quorum, EXCLUDED.requester_may_approve,
    EXCLUDED.probe, EXCLUDED.upstream, EXCLUDED.execute_on_approval,
    EXCLUDED.compensation_args, EXCLUDED.caller_args)
RETURNING r.xmax = 0
