-- Ends the pause of every organisation, and makes the walking rollbacks due that wait for a later
-- time and that nobody holds; the reaper issues their tickets.
-- Promise: does nothing when there was no pause; a rollback that is held is left to its holder.
-- Lock: the pause, then the rollbacks' rows in id order. Index: idx_undolog_rollbacks_due.
WITH ended AS (
  DELETE FROM undolog_pause_all RETURNING paused_at, paused_by, reason
), waiting AS (
  SELECT rollback_id FROM undolog_rollbacks
  WHERE state = 'walking' AND due_at > clock_timestamp() AND EXISTS (SELECT FROM ended)
    AND (lease_expires_at IS NULL OR lease_expires_at <= clock_timestamp())
  ORDER BY rollback_id
  FOR NO KEY UPDATE SKIP LOCKED
), woken AS (
  UPDATE undolog_rollbacks r SET due_at = clock_timestamp()
  FROM waiting w
  WHERE r.rollback_id = w.rollback_id
)
SELECT paused_at, paused_by, reason FROM ended
