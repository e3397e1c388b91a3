-- Reads the results of those of some effects ($4) that are committed, in the given order, up to a
-- number of bytes ($7; the first row always).
-- Promise: only rows of the organisation and session; matched counts the rows before the cut by
-- bytes; n is the place in $4. Prunes to the partitions between the effects' times ($5, $6).
-- Lock: none. Index: primary key of each partition.
WITH asked AS (
  SELECT a.effect_id, a.n FROM unnest($4::uuid[]) WITH ORDINALITY AS a (effect_id, n)
), page AS (
  SELECT a.n, e.effect_id, e.attempt, e.position, e.step_index, e.step_key, e.tool_name, e.tool_version,
    e.call_signature::text AS call_signature, e.result_snapshot::text AS result_text,
    e.result_snapshot_raw AS result_raw, e.duration_ms
  FROM asked a
  JOIN undolog_effect_log e ON e.effect_id = a.effect_id
    AND e.executed_at >= $5 AND e.executed_at < $6
  WHERE e.org_id = $1 AND e.session_id = $2 AND e.session_month = $3 AND e.state = 'committed'
), sized AS (
  SELECT page.*, count(*) OVER () AS matched, row_number() OVER (ORDER BY n) AS place,
    sum(COALESCE(octet_length(result_raw), octet_length(result_text), 0)) OVER (ORDER BY n) AS bytes
  FROM page
)
SELECT n, effect_id, attempt, position, step_index, step_key, tool_name, tool_version, call_signature,
  result_text, result_raw, duration_ms, matched
FROM sized
WHERE place = 1 OR bytes <= $7
ORDER BY place
