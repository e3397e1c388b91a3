-- Ends the pause of every organisation, and makes the walking rollbacks due that wait for a later
-- time and that nobody holds; the reaper issues their tickets.
-- Promise: does nothing when there was no pause; a rollback that is held is left to its holder. They
-- become due one after the other, $1 milliseconds apart, or closer so that the last one is due
-- within $2: first the oldest of each organisation, then the second of each, and so on. Nothing
-- becomes due later than it was.
-- Lock: the pause, then the rollbacks' rows in id order. Index: idx_undolog_rollbacks_due.
WITH ended AS (
  DELETE FROM undolog_pause_all RETURNING paused_at, paused_by, reason
), waiting AS (
  SELECT rollback_id, org_id FROM undolog_rollbacks
  WHERE state = 'walking' AND due_at > (SELECT clock_timestamp()) AND EXISTS (SELECT FROM ended)
    AND (lease_expires_at IS NULL OR lease_expires_at <= (SELECT clock_timestamp()))
  ORDER BY rollback_id
  FOR NO KEY UPDATE SKIP LOCKED
), ranked AS (
  SELECT rollback_id, row_number() OVER (PARTITION BY org_id ORDER BY rollback_id) AS turn
  FROM waiting
), spread AS (
  SELECT rollback_id, (row_number() OVER (ORDER BY turn, rollback_id) - 1)
    * least($1::float8, $2::float8 / count(*) OVER ()) AS after_ms
  FROM ranked
), woken AS (
  UPDATE undolog_rollbacks r
  SET due_at = least(r.due_at, clock_timestamp() + s.after_ms * interval '1 millisecond')
  FROM spread s
  WHERE r.rollback_id = s.rollback_id
)
SELECT paused_at, paused_by, reason FROM ended
