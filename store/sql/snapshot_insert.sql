-- Writes a snapshot.
-- Promise: never two for one step: where calls share a step, the second is not written.
-- Lock: the session's snapshot lock is held. Index: undolog_session_snapshots_unique.
INSERT INTO undolog_session_snapshots (session_id, org_id, up_to_step, event_seq, effect_ids,
  invalidated, state_bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (session_id, up_to_step) DO NOTHING
