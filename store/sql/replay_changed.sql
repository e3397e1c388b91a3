-- The effects that were committed, or are committed no more, since a snapshot ($4: its last event),
-- in the order of their last change.
-- Promise: what later statements read of the rows can only be newer. Lock: none. Index: primary key
-- of the events' partition.
SELECT subject_id
FROM undolog_effect_events
WHERE session_month = $1 AND session_id = $2 AND org_id = $3 AND seq > $4
  AND subject = 'effect' AND 'committed' IN (from_state, to_state)
  AND from_state IS DISTINCT FROM to_state
GROUP BY subject_id
ORDER BY max(seq)
