-- What a rollback could not undo: committed irreversible effects (residue), and entries that were
-- skipped because a reported failure left no result (unverified).
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT
  (SELECT count(*) FROM undolog_effect_log
   WHERE session_id = $1 AND org_id = $2 AND executed_at BETWEEN $3 AND $5 AND position >= $4
     AND tier = 'irreversible' AND state = 'committed'),
  (SELECT count(*) FROM undolog_undo_stack
   WHERE session_id = $1 AND org_id = $2 AND stack_position >= $4
     AND state = 'skipped' AND skip_reason = 'failed_without_result')
