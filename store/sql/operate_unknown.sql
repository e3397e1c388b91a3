-- Lists the effects of an organisation of which nobody knows whether they happened, the longest
-- unknown first, after a place in that order ($4, $5), up to a number of rows ($6) and of bytes ($7;
-- the first row always).
-- Promise: only rows of the organisation; failures of settled or sealed sessions have left the list,
-- and are found by their session or their id; matched counts the rows before the cut by bytes,
-- and none is rendered behind the first one that does not fit. Of a whole organisation no row is read
-- behind the last one of the reading for one page ($9, $10). Lock: none.
-- Index: idx_undolog_effect_log_uncertain of each partition; with a session ($2)
-- idx_undolog_effect_log_session; with an effect ($8) primary keys.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT one.*
  FROM (
    (SELECT e.effect_id, e.executed_at, s.session_state, e.since
    FROM undolog_listed_unknown e
    CROSS JOIN LATERAL (
      SELECT o.state::text AS session_state FROM undolog_sessions o
      WHERE o.session_id = e.session_id AND o.org_id = $1
        AND (e.state = 'unknown' OR (o.settled_at IS NULL AND o.sealed_at IS NULL))
      OFFSET 0) AS s
    WHERE $2::uuid IS NULL AND $8::uuid IS NULL AND e.org_id = $1
      AND ($3::text IS NULL OR e.tool_name = $3)
      AND (e.since, e.effect_id) > (COALESCE($4::timestamptz, '-infinity'),
        COALESCE($5::uuid, '00000000-0000-0000-0000-000000000000'))
      AND (e.since, e.effect_id) <= (COALESCE($9::timestamptz, 'infinity'),
        COALESCE($10::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    ORDER BY e.since, e.effect_id
    LIMIT $6)
    UNION ALL
    (SELECT e.effect_id, e.executed_at, s.state::text,
      COALESCE(e.lost_at, e.failed_at, e.executed_at)
    FROM undolog_sessions s
    JOIN undolog_effect_log e ON e.session_id = s.session_id AND e.org_id = $1
      AND e.executed_at >= s.started_at
        AND e.executed_at <= COALESCE(s.last_executed_at, s.started_at)
    WHERE s.session_id = $2 AND s.org_id = $1
      AND (e.state = 'unknown' OR (e.state = 'failed' AND e.outcome = 'maybe_applied'))
      AND ($3::text IS NULL OR e.tool_name = $3)
      AND ($8::uuid IS NULL OR e.effect_id = $8)
      AND (COALESCE(e.lost_at, e.failed_at, e.executed_at), e.effect_id)
        > (COALESCE($4::timestamptz, '-infinity'),
          COALESCE($5::uuid, '00000000-0000-0000-0000-000000000000')))
    UNION ALL
    (SELECT e.effect_id, e.executed_at, s.state::text,
      COALESCE(e.lost_at, e.failed_at, e.executed_at)
    FROM undolog_effect_log e
    JOIN undolog_sessions s ON s.session_id = e.session_id AND s.org_id = $1
    WHERE $2::uuid IS NULL AND e.effect_id = $8 AND e.org_id = $1
      AND (e.state = 'unknown' OR (e.state = 'failed' AND e.outcome = 'maybe_applied'))
      AND ($3::text IS NULL OR e.tool_name = $3)
      AND ($4::timestamptz IS NULL
        OR (COALESCE(e.lost_at, e.failed_at, e.executed_at), e.effect_id) > ($4, $5::uuid)))
  ) AS one
  ORDER BY one.since, one.effect_id
  LIMIT $6
), keys AS MATERIALIZED (
  SELECT array_agg(effect_id ORDER BY since, effect_id) AS ids,
    array_agg(executed_at ORDER BY since, effect_id) AS times,
    array_agg(since ORDER BY since, effect_id) AS sinces,
    array_agg(session_state ORDER BY since, effect_id) AS states, count(*) AS matched
  FROM page
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (
    SELECT COALESCE(octet_length(args_snapshot_raw), octet_length(args_snapshot::text))
      + COALESCE(octet_length(result_snapshot_raw), octet_length(result_snapshot::text), 0)
      + COALESCE(octet_length(compensation_args_raw), octet_length(compensation_args::text), 0)
      + COALESCE(octet_length(error), 0)
    FROM undolog_effect_log e
    WHERE e.effect_id = k.ids[f.place + 1] AND e.executed_at = k.times[f.place + 1]
      AND e.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.matched AND (f.place = 0 OR f.bytes <= $7)
)
SELECT e.effect_id, e.session_id, e.tool_id, e.tool_name, e.tool_version, e.tier::text AS tier,
  e.step_index, e.step_key, e.call_signature::text AS call_signature,
  e.args_snapshot::text AS args_text, e.args_snapshot_raw AS args_raw,
  e.result_snapshot::text AS result_text, e.result_snapshot_raw AS result_raw,
  e.compensation_args::text AS compensation_text, e.compensation_args_raw AS compensation_raw,
  e.state::text AS state, e.attempt, COALESCE(e.position, e.asked_position) AS position,
  e.outcome, e.error, e.error_raw, e.duration_ms, e.executed_at, e.committed_at,
  e.compensated_at, e.lease_renewed_at + e.lease_ms * interval '1 millisecond'
    AS lease_expires_at, e.replay_count, e.approval_request_id, k.matched,
  k.states[f.place] AS session_state, k.sinces[f.place] AS lost_at, e.granted_at,
  e.probe_answer, e.probe_error, e.probe_count,
  COALESCE(t.probe IS NOT NULL, false) AS has_probe
FROM fitting f
CROSS JOIN keys k
CROSS JOIN LATERAL (
  SELECT * FROM undolog_effect_log l
  WHERE l.effect_id = k.ids[f.place] AND l.executed_at = k.times[f.place] AND l.org_id = $1
  OFFSET 0
) AS e
LEFT JOIN undolog_tool_registry t ON t.tool_id = e.tool_id AND t.org_id = $1
WHERE f.place = 1 OR f.place > 1 AND f.bytes <= $7
ORDER BY f.place
