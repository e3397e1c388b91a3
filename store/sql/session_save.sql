-- Writes back what a step changed of its session.
-- Promise: only the holder of the session's lock runs it; counters of the documented triggers are
-- not touched. Lock: the session row, held by the caller. Index: primary key.
UPDATE undolog_sessions SET
  state = $3::text::undolog_session_state, event_seq = $4, last_position = $5, max_step = $6,
  effects_total = $7, numbering = $8, completed_at = $9, failed_at = $10, failure_reason = $11,
  failure_reason_raw = $12, last_executed_at = $13, last_rpc_at = $14, lease_renewed_at = $15,
  lease_hold_until = $16, grant_lost_at = $17, lease_failed_at = $18, residue_count = $19,
  unverified_count = $20, settled_at = $21
WHERE session_id = $1 AND org_id = $2
