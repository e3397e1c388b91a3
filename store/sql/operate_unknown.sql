-- Lists the effects of an organisation of which nobody knows whether they happened, the longest
-- unknown first, after a place in that order ($4, $5), up to a number of rows ($6) and of bytes ($7;
-- the first row always).
-- Promise: only rows of the organisation; failures of settled or sealed sessions have left the list,
-- and are found by their session or their id; matched counts the rows before the cut by bytes.
-- Lock: none. Index: idx_undolog_effect_log_uncertain of each partition.
WITH page AS (
  SELECT e.*, s.state::text AS session_state,
    COALESCE(e.lost_at, e.failed_at, e.executed_at) AS since
  FROM undolog_effect_log e
  JOIN undolog_sessions s ON s.session_id = e.session_id AND s.org_id = $1
  WHERE e.org_id = $1
    AND (e.state = 'unknown' OR (e.state = 'failed' AND e.outcome = 'maybe_applied'))
    AND (e.state = 'unknown' OR $2::uuid IS NOT NULL OR $8::uuid IS NOT NULL
      OR (s.settled_at IS NULL AND s.sealed_at IS NULL))
    AND ($2::uuid IS NULL OR e.session_id = $2)
    AND ($3::text IS NULL OR e.tool_name = $3)
    AND ($8::uuid IS NULL OR e.effect_id = $8)
    AND ($4::timestamptz IS NULL
      OR (COALESCE(e.lost_at, e.failed_at, e.executed_at), e.effect_id) > ($4, $5::uuid))
  ORDER BY COALESCE(e.lost_at, e.failed_at, e.executed_at), e.effect_id
  LIMIT $6
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY since, effect_id) AS place,
    sum(COALESCE(octet_length(args_snapshot_raw), octet_length(args_snapshot::text))
      + COALESCE(octet_length(result_snapshot_raw), octet_length(result_snapshot::text), 0)
      + COALESCE(octet_length(compensation_args_raw), octet_length(compensation_args::text), 0)
      + COALESCE(octet_length(error), 0)) OVER (ORDER BY since, effect_id) AS bytes
  FROM page
)
SELECT e.effect_id, e.session_id, e.tool_id, e.tool_name, e.tool_version, e.tier::text AS tier,
  e.step_index, e.step_key, e.call_signature::text AS call_signature,
  e.args_snapshot::text AS args_text, e.args_snapshot_raw AS args_raw,
  e.result_snapshot::text AS result_text, e.result_snapshot_raw AS result_raw,
  e.compensation_args::text AS compensation_text, e.compensation_args_raw AS compensation_raw,
  e.state::text AS state, e.attempt, COALESCE(e.position, e.asked_position) AS position,
  e.outcome, e.error, e.error_raw, e.duration_ms, e.executed_at, e.committed_at,
  e.compensated_at, e.lease_renewed_at + e.lease_ms * interval '1 millisecond'
    AS lease_expires_at, e.replay_count, e.approval_request_id, e.matched,
  e.session_state, e.since AS lost_at, e.granted_at,
  e.probe_answer, e.probe_error, e.probe_count,
  COALESCE(t.probe IS NOT NULL, false) AS has_probe
FROM sized e
LEFT JOIN undolog_tool_registry t ON t.tool_id = e.tool_id AND t.org_id = $1
WHERE e.place = 1 OR e.bytes <= $7
ORDER BY e.place
