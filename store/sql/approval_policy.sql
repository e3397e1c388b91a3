-- The policy of an approval request: tool, else project, else organisation.
-- Lock: none; what is read is fixed on the request. Index: primary keys.
SELECT
  COALESCE(t.approval_timeout_seconds, p.approval_timeout_seconds,
    o.default_approval_timeout_seconds) AS timeout_seconds,
  COALESCE(t.auto_approve_on_timeout, p.auto_approve_on_timeout, o.auto_approve_on_timeout)
    AND NOT (o.never_auto_approve_tags && $4::text[]) AS auto_approve_on_timeout,
  COALESCE(t.approval_quorum, p.approval_quorum, 1) AS quorum,
  COALESCE(t.requester_may_approve, o.requester_may_approve) AS requester_may_approve
FROM undolog_orgs o
LEFT JOIN undolog_tool_registry t ON t.tool_id = $2 AND t.org_id = o.org_id
LEFT JOIN undolog_projects p
  ON p.project_id = COALESCE($3, t.project_id) AND p.org_id = o.org_id
WHERE o.org_id = $1
