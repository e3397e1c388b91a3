-- Lists the effects of a session by step, after a place in that order ($4, $5), up to a number of
-- rows ($6) and of bytes ($7; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes; a session's
-- effects lie between its start ($3) and its last call ($8), which prunes partitions. No value is
-- rendered behind the first row that does not fit: the steps from one row to the next end there.
-- Lock: none. Index: idx_undolog_effect_log_session of each partition, then primary keys.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT e.step_index, e.effect_id, e.executed_at
  FROM undolog_effect_log e
  WHERE e.org_id = $1 AND e.session_id = $2 AND e.executed_at >= $3 AND e.executed_at <= $8
    AND (e.step_index, e.effect_id) > ($4, $5::uuid)
  ORDER BY e.step_index, e.effect_id
  LIMIT $6
), keys AS MATERIALIZED (
  SELECT array_agg(effect_id ORDER BY step_index, effect_id) AS ids,
    array_agg(executed_at ORDER BY step_index, effect_id) AS times, count(*) AS matched
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
      AND e.executed_at >= $3 AND e.executed_at <= $8 AND e.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.matched AND (f.place = 0 OR f.bytes <= $7)
)
SELECT e.*, k.matched
FROM fitting f
CROSS JOIN keys k
CROSS JOIN LATERAL (
  SELECT effect_id, session_id, tool_id, tool_name, tool_version, tier::text AS tier, step_index,
    step_key, call_signature::text AS call_signature, args_snapshot::text AS args_text,
    args_snapshot_raw AS args_raw, result_snapshot::text AS result_text,
    result_snapshot_raw AS result_raw, compensation_args::text AS compensation_text,
    compensation_args_raw AS compensation_raw, state::text AS state, attempt,
    COALESCE(position, asked_position) AS position, outcome, error, error_raw, duration_ms,
    executed_at, committed_at, compensated_at,
    lease_renewed_at + lease_ms * interval '1 millisecond' AS lease_expires_at, replay_count,
    approval_request_id
  FROM undolog_effect_log
  WHERE effect_id = k.ids[f.place] AND executed_at = k.times[f.place]
    AND executed_at >= $3 AND executed_at <= $8 AND org_id = $1
  OFFSET 0
) AS e
WHERE f.place = 1 OR f.place > 1 AND f.bytes <= $7
ORDER BY f.place
