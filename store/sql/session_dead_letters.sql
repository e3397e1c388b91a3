-- Reads a session's dead letters as they are shown: open ones first, then the newest first.
-- Promise: only rows of the organisation. Lock: none. Index: idx_undolog_dead_letters_session.
SELECT dead_letter_id, session_id, effect_id, undo_id, rollback_id, reason, detail, detail_raw,
  created_at, closed_at, closed_by, resolution, note
FROM undolog_dead_letters
WHERE org_id = $1 AND session_id = $2
ORDER BY closed_at IS NOT NULL, created_at DESC, dead_letter_id DESC
LIMIT $3
