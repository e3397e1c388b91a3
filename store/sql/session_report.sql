-- What all rollbacks of a session together could not undo, each effect counted once however many of
-- their scopes hold it.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months,
-- idx_undolog_rollbacks_session.
WITH scopes AS (
  SELECT from_position AS lower, COALESCE(until_position, 2147483647) AS upper
  FROM undolog_rollbacks
  WHERE session_id = $1 AND org_id = $2 AND finished_at IS NOT NULL AND state <> 'superseded')
SELECT
  (SELECT count(*) FROM undolog_effect_log e
   WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $4
     AND e.tier = 'irreversible' AND (
       (e.state = 'committed' AND EXISTS (
         SELECT FROM scopes s WHERE e.position BETWEEN s.lower AND s.upper))
       OR (e.attempt > 1 AND EXISTS (
         SELECT FROM undolog_effect_attempts a
         JOIN scopes s ON a.position BETWEEN s.lower AND s.upper
         WHERE a.effect_id = e.effect_id AND a.org_id = $2
           AND a.result_snapshot IS NOT NULL)))),
  (SELECT count(*) FROM undolog_undo_stack u
   WHERE u.session_id = $1 AND u.org_id = $2
     AND u.state = 'skipped' AND u.skip_reason = 'failed_without_result'
     AND EXISTS (SELECT FROM scopes s WHERE u.stack_position BETWEEN s.lower AND s.upper))
