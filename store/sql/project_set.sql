-- Changes a project's policies of approvals; a false switch leaves its column as it is, and NULL
-- leaves the decision to the organisation.
-- Promise: requests that were made keep the policy of their time. Lock: the project's row.
-- Index: primary key.
UPDATE undolog_projects SET
  approval_timeout_seconds = CASE WHEN $3 THEN $4 ELSE approval_timeout_seconds END,
  auto_approve_on_timeout = CASE WHEN $5 THEN $6 ELSE auto_approve_on_timeout END,
  approval_quorum = CASE WHEN $7 THEN $8 ELSE approval_quorum END,
  updated_at = clock_timestamp()
WHERE org_id = $1 AND project_id = $2
