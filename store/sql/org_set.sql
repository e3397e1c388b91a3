-- Sets what was given of an organisation's policies; NULL leaves a value as it is.
-- Promise: one row, and its new state. Lock: the organisation's row. Index: primary key.
UPDATE undolog_orgs SET
  name = COALESCE($2, name),
  default_approval_timeout_seconds = COALESCE($3, default_approval_timeout_seconds),
  auto_approve_on_timeout = COALESCE($4, auto_approve_on_timeout),
  on_tool_failure = COALESCE($5, on_tool_failure),
  on_rejection = COALESCE($6, on_rejection),
  on_dead_letter = COALESCE($7, on_dead_letter),
  on_step_conflict = COALESCE($8, on_step_conflict),
  on_unregistered_tool = COALESCE($9, on_unregistered_tool),
  on_unknown = CASE WHEN $10 = 'default' THEN NULL ELSE COALESCE($10, on_unknown) END,
  on_idle = COALESCE($11, on_idle),
  idle_session_seconds = COALESCE($12, idle_session_seconds),
  resume_window_seconds = COALESCE($13, resume_window_seconds),
  undo_window_seconds = COALESCE($14, undo_window_seconds),
  settle_ms = CASE WHEN $15 < 0 THEN NULL ELSE COALESCE($15, settle_ms) END,
  never_auto_approve_tags = COALESCE($16, never_auto_approve_tags),
  updated_at = clock_timestamp()
WHERE org_id = $1
RETURNING *
