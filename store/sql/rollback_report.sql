-- What a rollback could not undo: irreversible effects that happened (residue), and entries that
-- were skipped because a reported failure left no result (unverified). An earlier attempt whose
-- success was stored happened as well.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT
  (SELECT count(*) FROM undolog_effect_log e
   WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $6
     AND e.tier = 'irreversible' AND (
       (e.state = 'committed' AND e.position BETWEEN $4 AND $5)
       OR (e.attempt > 1 AND EXISTS (
         SELECT FROM undolog_effect_attempts a
         WHERE a.effect_id = e.effect_id AND a.org_id = $2
           AND a.result_snapshot IS NOT NULL AND a.position BETWEEN $4 AND $5)))),
  (SELECT count(*) FROM undolog_undo_stack
   WHERE session_id = $1 AND org_id = $2 AND stack_position BETWEEN $4 AND $5
     AND state = 'skipped' AND skip_reason = 'failed_without_result')
