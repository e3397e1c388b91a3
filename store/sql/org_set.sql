-- Changes an organisation's time-outs and policies; a NULL parameter leaves its column as it is.
-- Promise: one statement, so either every change holds or none; sessions read the policies anew at
-- each step. Lock: the organisation's row. Index: primary key of undolog_orgs.
UPDATE undolog_orgs SET
  name = COALESCE($2, name),
  default_approval_timeout_seconds = COALESCE($3, default_approval_timeout_seconds),
  auto_approve_on_timeout = COALESCE($4, auto_approve_on_timeout),
  never_auto_approve_tags = COALESCE($5, never_auto_approve_tags),
  on_tool_failure = COALESCE($6, on_tool_failure),
  on_rejection = COALESCE($7, on_rejection),
  on_dead_letter = COALESCE($8, on_dead_letter),
  on_step_conflict = COALESCE($9, on_step_conflict),
  on_unregistered_tool = COALESCE($10, on_unregistered_tool),
  on_unknown = CASE WHEN $11 THEN $12 ELSE on_unknown END,
  on_idle = COALESCE($13, on_idle),
  idle_session_seconds = COALESCE($14, idle_session_seconds),
  resume_window_seconds = COALESCE($15, resume_window_seconds),
  undo_window_seconds = COALESCE($16, undo_window_seconds),
  settle_ms = CASE WHEN $17 THEN $18 ELSE settle_ms END,
  webhook_url = CASE WHEN $19 THEN $20 ELSE webhook_url END,
  webhook_secret = CASE WHEN $19 AND $20 IS NULL THEN NULL ELSE COALESCE($21, webhook_secret) END,
  requester_may_approve = COALESCE($22, requester_may_approve),
  agents_roll_back = COALESCE($23, agents_roll_back),
  updated_at = clock_timestamp()
WHERE org_id = $1
