-- Looks a call up by its signature and its step, and takes the documented advisory lock.
-- Promise: signatures are looked up in the partition of the session's start month, which never
-- changes, so both sides of a month end see one call. Lock: the session's lock is held; the
-- advisory lock is tried, not waited for. Index: undolog_signatures_unique and
-- idx_undolog_effect_log_session.
SELECT pg_try_advisory_xact_lock($5),
  (SELECT s.effect_id FROM undolog_signatures s
   WHERE s.session_month = $1 AND s.session_id = $2 AND s.call_signature = $3::text::char(64)
     AND s.org_id = $4),
  EXISTS (SELECT FROM undolog_effect_log e
    WHERE e.session_id = $2 AND e.step_index = $6 AND e.executed_at >= $7 AND e.org_id = $4
      AND e.call_signature <> $3::text::char(64)
      AND NOT (e.state = 'failed' AND e.outcome = 'not_applied'))
