-- Reads a session's dead letters as they are shown, open ones first, then the newest first, after a
-- place in that order ($3, $4, $5), up to a number of rows ($6) and of bytes ($7; the first row
-- always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes.
-- Lock: none. Index: idx_undolog_dead_letters_session.
WITH page AS (
  SELECT d.*, d.closed_at IS NOT NULL AS is_closed
  FROM undolog_dead_letters d
  WHERE d.org_id = $1 AND d.session_id = $2
    AND ($3::bool IS NULL OR (d.closed_at IS NOT NULL) > $3
      OR ((d.closed_at IS NOT NULL) = $3 AND (d.created_at, d.dead_letter_id) < ($4, $5::uuid)))
  ORDER BY d.closed_at IS NOT NULL, d.created_at DESC, d.dead_letter_id DESC
  LIMIT $6
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY is_closed, created_at DESC, dead_letter_id DESC) AS place,
    sum(octet_length(detail) + COALESCE(octet_length(note), 0))
      OVER (ORDER BY is_closed, created_at DESC, dead_letter_id DESC) AS bytes
  FROM page
)
SELECT dead_letter_id, session_id, effect_id, undo_id, rollback_id, reason, detail, detail_raw,
  created_at, closed_at, closed_by, resolution, note, matched
FROM sized
WHERE place = 1 OR bytes <= $7
ORDER BY place
