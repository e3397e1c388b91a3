-- Opens a dead letter unless one about the same effect and entry is open.
-- Promise: exactly one open dead letter per effect and undo entry. Lock: the session's lock is
-- held. Index: undolog_dead_letters_one_open.
INSERT INTO undolog_dead_letters (org_id, session_id, effect_id, undo_id, rollback_id, reason,
  detail, detail_raw, created_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (effect_id, undo_id) WHERE closed_at IS NULL DO NOTHING
RETURNING dead_letter_id
