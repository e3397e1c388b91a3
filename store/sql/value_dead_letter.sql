-- Reads one dead letter by its id as it is shown.
-- Promise: only a row of the organisation and, when a principal is given ($3), only of its own
-- session. Lock: none. Index: primary keys.
SELECT d.dead_letter_id, d.session_id, d.effect_id, d.undo_id, d.rollback_id, d.reason, d.detail,
  d.detail_raw, d.created_at, d.closed_at, d.closed_by, d.resolution, d.note
FROM undolog_dead_letters d
JOIN undolog_sessions s ON s.session_id = d.session_id AND s.org_id = $1
WHERE d.org_id = $1 AND d.dead_letter_id = $2 AND ($3::text IS NULL OR s.principal = $3)
