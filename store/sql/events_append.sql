-- Appends a step's events after the session's last one.
-- Promise: gapless numbers, since the caller holds the session's lock and writes the new last
-- number in the same transaction. Lock: the session row, held by the caller. Index: primary key.
INSERT INTO undolog_effect_events (session_month, org_id, session_id, seq, kind, subject,
  subject_id, from_state, to_state, attempt, actor, occurred_at, detail, epoch)
SELECT $1, $2, $3, $4 + e.n, e.kind, e.subject, e.subject_id, e.from_state, e.to_state, e.attempt,
  e.actor, $5, e.detail, (SELECT epoch FROM undolog_cluster)
FROM unnest($6::text[], $7::text[], $8::uuid[], $9::text[], $10::text[], $11::int[], $12::text[],
  $13::jsonb[]) WITH ORDINALITY
  AS e (kind, subject, subject_id, from_state, to_state, attempt, actor, detail, n)
