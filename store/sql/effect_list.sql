-- Lists the effects of a session by step, after a place in that order ($4, $5), up to a number of
-- rows ($6) and of bytes ($7; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes; nothing
-- of it lies outside its times ($3, $8), which prunes the other partitions. Lock: none.
-- Index: idx_undolog_effect_log_session of each partition.
WITH page AS (
  SELECT e.*
  FROM undolog_effect_log e
  WHERE e.org_id = $1 AND e.session_id = $2 AND e.executed_at BETWEEN $3 AND $8
    AND (e.step_index, e.effect_id) > ($4, $5::uuid)
  ORDER BY e.step_index, e.effect_id
  LIMIT $6
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY step_index, effect_id) AS place,
    sum(COALESCE(octet_length(args_snapshot_raw), octet_length(args_snapshot::text))
      + COALESCE(octet_length(result_snapshot_raw), octet_length(result_snapshot::text), 0)
      + COALESCE(octet_length(compensation_args_raw), octet_length(compensation_args::text), 0)
      + COALESCE(octet_length(error), 0)) OVER (ORDER BY step_index, effect_id) AS bytes
  FROM page
)
SELECT effect_id, session_id, tool_id, tool_name, tool_version, tier::text AS tier, step_index,
  step_key, call_signature::text AS call_signature, args_snapshot::text AS args_text,
  args_snapshot_raw AS args_raw, result_snapshot::text AS result_text,
  result_snapshot_raw AS result_raw, compensation_args::text AS compensation_text,
  compensation_args_raw AS compensation_raw, state::text AS state, attempt,
  COALESCE(position, asked_position) AS position, outcome, error, error_raw, duration_ms,
  executed_at, committed_at, compensated_at,
  lease_renewed_at + lease_ms * interval '1 millisecond' AS lease_expires_at, replay_count,
  approval_request_id, matched
FROM sized
WHERE place = 1 OR bytes <= $7
ORDER BY place
