-- How many open dead letters stand in the way of a rollback's end: all of the session's for a whole
-- one, those within its scope for a partial one.
-- Lock: the session's lock is held. Index: idx_undolog_dead_letters_session.
SELECT count(*)
FROM undolog_dead_letters d
WHERE d.session_id = $1 AND d.org_id = $2 AND d.closed_at IS NULL
  AND ($3 OR d.rollback_id = $4 OR EXISTS (
    SELECT FROM undolog_undo_stack u
    WHERE u.undo_id = d.undo_id AND u.org_id = $2 AND u.stack_position >= $5))
