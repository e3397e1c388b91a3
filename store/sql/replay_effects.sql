-- Reads the results of those of some effects ($4) that are committed, in the given order, up to a
-- number of bytes ($7; the first row always).
-- Promise: only rows of the organisation and session; matched counts the rows before the cut by
-- bytes; n is the place in $4. Prunes to the partitions between the effects' times ($5, $6). No result
-- is rendered behind the first one that does not fit: the steps from one to the next end there.
-- Lock: none. Index: primary key of each partition.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT a.n, e.effect_id, e.executed_at
  FROM unnest($4::uuid[]) WITH ORDINALITY AS a (effect_id, n)
  CROSS JOIN LATERAL (
    SELECT l.effect_id, l.executed_at, l.session_id, l.session_month, l.state
    FROM undolog_effect_log l
    WHERE l.effect_id = a.effect_id AND l.executed_at >= $5 AND l.executed_at < $6
      AND l.org_id = $1
    OFFSET 0
  ) AS e
  WHERE e.session_id = $2 AND e.session_month = $3 AND e.state = 'committed'
), keys AS MATERIALIZED (
  SELECT array_agg(n ORDER BY n) AS places, array_agg(effect_id ORDER BY n) AS ids,
    array_agg(executed_at ORDER BY n) AS times, count(*) AS matched
  FROM page
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (
    SELECT COALESCE(octet_length(result_snapshot_raw), octet_length(result_snapshot::text), 0)
    FROM undolog_effect_log e
    WHERE e.effect_id = k.ids[f.place + 1] AND e.executed_at = k.times[f.place + 1]
      AND e.executed_at >= $5 AND e.executed_at < $6 AND e.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.matched AND (f.place = 0 OR f.bytes <= $7)
)
SELECT k.places[f.place] AS n, e.*, k.matched
FROM fitting f
CROSS JOIN keys k
CROSS JOIN LATERAL (
  SELECT effect_id, attempt, position, step_index, step_key, tool_name, tool_version,
    call_signature::text AS call_signature, result_snapshot::text AS result_text,
    result_snapshot_raw AS result_raw, duration_ms
  FROM undolog_effect_log
  WHERE effect_id = k.ids[f.place] AND executed_at = k.times[f.place]
    AND executed_at >= $5 AND executed_at < $6 AND org_id = $1
  OFFSET 0
) AS e
WHERE f.place = 1 OR f.place > 1 AND f.bytes <= $7
ORDER BY f.place
