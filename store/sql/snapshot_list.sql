-- The snapshots of a session in the order in which they follow each other, without their contents.
-- Promise: only rows of the organisation. Lock: none.
-- Index: idx_undolog_session_snapshots_session.
SELECT snapshot_id, event_seq, invalidated
FROM undolog_session_snapshots
WHERE session_id = $1 AND org_id = $2
ORDER BY event_seq, up_to_step
