-- Reads a session's rollbacks as they are shown, from the newest on, after a place in that order ($3,
-- $4), up to a number of rows ($5) and of bytes ($6; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes.
-- Lock: none. Index: idx_undolog_rollbacks_session.
WITH page AS (
  SELECT rollback_id, kind, state, from_position, requested_by, reason, reason_raw, created_at, due_at,
    finished_at, residue_count, unverified_count
  FROM undolog_rollbacks
  WHERE org_id = $1 AND session_id = $2
    AND ($3::timestamptz IS NULL OR (created_at, rollback_id) < ($3, $4::uuid))
  ORDER BY created_at DESC, rollback_id DESC
  LIMIT $5
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY created_at DESC, rollback_id DESC) AS place,
    sum(octet_length(reason)) OVER (ORDER BY created_at DESC, rollback_id DESC) AS bytes
  FROM page
)
SELECT * FROM sized WHERE place = 1 OR bytes <= $6 ORDER BY place
