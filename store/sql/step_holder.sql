-- Whether another call of a step holds it: each does until it is known not to have happened.
-- Promise: reads calls of this step only. Lock: the session's lock is held.
-- Index: idx_undolog_signatures_step, then the primary key of the partitions between the session's
-- times ($6, $7).
SELECT EXISTS (
  SELECT FROM undolog_signatures s
  JOIN undolog_effect_log e ON e.effect_id = s.effect_id AND e.org_id = $4
    AND e.executed_at BETWEEN $6 AND $7
  WHERE s.session_month = $1 AND s.session_id = $2 AND s.step_index = $5 AND s.org_id = $4
    AND s.call_signature <> $3::text::char(64)
    AND NOT (e.state = 'failed' AND e.outcome = 'not_applied'))
