-- Records a new call and its signature; answers how many rows were written (2 when it is new).
-- Promise: the same call is never recorded twice, also over a month end: the signature's partition
-- is the session's start month. Lock: the session's lock is held. Index: undolog_signatures_unique
-- and the partition's unique index on call_signature.
WITH s AS (
  INSERT INTO undolog_signatures (session_month, org_id, session_id, call_signature, effect_id,
    step_index, step_key)
  VALUES ($4, $2, $3, $6, $1, $10, $11)
  ON CONFLICT DO NOTHING
  RETURNING 1
), e AS (
  INSERT INTO undolog_effect_log (effect_id, org_id, session_id, session_month, tool_id,
    call_signature, tool_name, tool_version, tier, step_index, step_key, args_snapshot,
    args_snapshot_raw, state, compensation_args, compensation_args_raw, executed_at, position,
    asked_position, grant_token, granted_at, lease_renewed_at, lease_ms, execution_ends_at,
    idempotent, accepts_approved_args, principal, approval_request_id, executor_tokens)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::undolog_tool_tier, $10, $11,
    $12::text::jsonb, $13, $14::text::undolog_effect_state, $15::text::jsonb, $16, $17, $18, $19,
    $20, $21, $22, $23, $24, $25, $26, $27, $28, $29)
  ON CONFLICT DO NOTHING
  RETURNING 1
)
SELECT (SELECT count(*) FROM s) + (SELECT count(*) FROM e)
