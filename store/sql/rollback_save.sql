-- Writes back what a step changed of a rollback.
-- Promise: lease and fence are not touched. Lock: the session's lock is held.
-- Index: primary key.
UPDATE undolog_rollbacks SET
  kind = $3, state = $4, from_position = $5, allow_residue = $6, due_at = $7, drained_at = $8,
  finished_at = $9, residue_count = $10, unverified_count = $11, until_position = $12,
  returns_to = $13, owes_entries = $14, cause = $15
WHERE rollback_id = $1 AND org_id = $2
