-- Writes the notifications about a step's events into the outbox.
-- Promise: in the transaction of what they tell about, so that there is one exactly when it
-- happened; ids, kinds, states, names and times only, never arguments, results or secrets.
-- Lock: the session's lock is held. Index: primary key of undolog_effect_log, of the session's
-- months.
WITH told AS MATERIALIZED (
  SELECT uuidv7_or_random() AS id, e.*
  FROM unnest($5::text[], $6::text[], $7::uuid[], $8::text[], $9::text[], $10::text[], $11::uuid[],
    $12::text[]) AS e (kind, event, subject_id, from_state, to_state, actor, effect_id, reason)
)
INSERT INTO undolog_notifications (notification_id, org_id, session_id, kind, body, created_at,
  due_at)
SELECT t.id, $1, $2, t.kind,
  jsonb_strip_nulls(jsonb_build_object(
    'id', t.id, 'kind', t.kind, 'event', t.event, 'org_id', $1::uuid, 'session_id', $2::uuid,
    'subject_id', t.subject_id, 'effect_id', t.effect_id, 'tool_name', l.tool_name,
    'from_state', t.from_state, 'to_state', t.to_state, 'actor', t.actor, 'reason', t.reason,
    'occurred_at', to_char($4::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))),
  $4, $4
FROM told t
LEFT JOIN undolog_effect_log l ON l.effect_id = t.effect_id AND l.executed_at BETWEEN $3 AND $13
  AND l.session_id = $2 AND l.org_id = $1
