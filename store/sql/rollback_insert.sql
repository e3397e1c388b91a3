-- Records a rollback.
-- Promise: one live rollback per session. Lock: the session's lock is held.
-- Index: undolog_rollbacks_one_live.
INSERT INTO undolog_rollbacks (rollback_id, org_id, session_id, kind, state, from_position, cause,
  requested_by, reason, allow_residue, created_at, due_at, reason_raw, started_seq, returns_to)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
