-- The policy of an approval request: of each active version of the tool, else its project, else the
-- organisation; over the versions, the strictest.
-- Promise: no version of a name makes a decision easier than another one. Lock: none; what is read is
-- fixed on the request. Index: primary keys, undolog_tool_registry_unique.
SELECT
  max(COALESCE(t.approval_timeout_seconds, p.approval_timeout_seconds,
    o.default_approval_timeout_seconds)) AS timeout_seconds,
  bool_and(COALESCE(t.auto_approve_on_timeout, p.auto_approve_on_timeout, o.auto_approve_on_timeout))
    AND NOT bool_or(o.never_auto_approve_tags && $4::text[]) AS auto_approve_on_timeout,
  max(COALESCE(t.approval_quorum, p.approval_quorum, 1)) AS quorum,
  bool_and(COALESCE(t.requester_may_approve, o.requester_may_approve)) AS requester_may_approve
FROM undolog_orgs o
LEFT JOIN undolog_tool_registry n ON n.tool_id = $2 AND n.org_id = o.org_id
LEFT JOIN undolog_tool_registry t ON t.org_id = n.org_id AND t.tool_name = n.tool_name
  AND (t.is_active OR t.tool_id = n.tool_id)
LEFT JOIN undolog_projects p
  ON p.project_id = COALESCE($3, t.project_id) AND p.org_id = o.org_id
WHERE o.org_id = $1
