-- Lists tools after a place in the order of name and version, up to a number of rows ($4) and of
-- bytes ($5; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes.
-- Lock: none. Index: undolog_tool_registry_unique.
WITH page AS (
  SELECT tool_id, tool_name, tool_version, tier::text AS tier, irreversibility_reason,
    compensation_ref, tool_schema::text AS tool_schema, risk_tags, estimated_impact, is_active,
    project_id, idempotent, grant_lease_ms, max_execution_ms, allowed_compensations, registered_at,
    approval_timeout_seconds, auto_approve_on_timeout, approval_quorum, requester_may_approve,
    probe::text AS probe, upstream::text AS upstream, execute_on_approval,
    compensation_args::text AS compensation_args, caller_args,
    updated_at
  FROM undolog_tool_registry
  WHERE org_id = $1 AND (tool_name, tool_version) > ($2, $3)
  ORDER BY tool_name, tool_version
  LIMIT $4
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY tool_name, tool_version) AS place,
    sum(octet_length(tool_schema) + COALESCE(octet_length(probe), 0)
      + COALESCE(octet_length(upstream), 0) + COALESCE(octet_length(compensation_args), 0) + COALESCE(octet_length(irreversibility_reason), 0)
      + COALESCE(octet_length(estimated_impact), 0) + octet_length(risk_tags::text)
      + octet_length(allowed_compensations::text)) OVER (ORDER BY tool_name, tool_version) AS bytes
  FROM page
)
SELECT * FROM sized WHERE place = 1 OR bytes <= $5 ORDER BY place
