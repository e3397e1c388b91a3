-- Writes back what a step changed of an effect.
-- Promise: identity, arguments and result are not touched; the database refuses illegal moves.
-- Lock: the session's lock is held. Index: primary key of the partition.
UPDATE undolog_effect_log SET
  state = $4::text::undolog_effect_state, committed_at = $5, compensated_at = $6, attempt = $7,
  position = $8, asked_position = $9, grant_token = $10, granted_at = $11, lease_renewed_at = $12,
  lease_ms = $13, execution_ends_at = $14, lost_at = $15, outcome = $16, rejected_by = $17,
  operator_said = $18, failed_at = $19, error = $20, error_raw = $21, duration_ms = $22,
  idempotent = $23, accepts_approved_args = $24, approval_request_id = $25, replay_count = $26,
  last_replayed_at = $27, tool_id = $28, tool_version = $29,
  tier = $30::text::undolog_tool_tier, executor_tokens = $31, result_by = $32
WHERE effect_id = $1 AND executed_at = $2 AND org_id = $3
