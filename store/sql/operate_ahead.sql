-- What a halted rollback would find: an open entry in its scope, and whether one that was given up
-- above it still stops the walk.
-- Promise: the same rule as the walk's own look at its next entry.
-- Lock: the session's lock is held.
-- Index: undolog_undo_stack_session_position; idx_undolog_dead_letters_session.
SELECT top.position IS NOT NULL AS has_open,
  top.position IS NOT NULL AND EXISTS (
    SELECT FROM undolog_dead_letters d
    JOIN undolog_undo_stack f ON f.undo_id = d.undo_id AND f.org_id = $2
    WHERE d.session_id = $1 AND d.org_id = $2 AND d.closed_at IS NULL
      AND d.reason <> 'MISSING_RESULT' AND f.state = 'failed'
      AND f.stack_position > top.position) AS is_blocked
FROM (
  SELECT max(stack_position) AS position FROM undolog_undo_stack
  WHERE session_id = $1 AND org_id = $2 AND stack_position >= $3
    AND state IN ('pending', 'running')) AS top
