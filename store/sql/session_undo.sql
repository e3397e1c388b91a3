-- Reads a session's undo stack as it is shown, from the highest position down, below a position ($3;
-- NULL: from the top), up to a number of rows ($4) and of bytes of text ($5; the first row always).
-- Arguments are shown of the smallest as stored first, as long as they fit into so many bytes ($6).
-- Promise: only entries of the organisation; matched counts the rows before the cut by bytes;
-- arguments behind the first ones that do not fit are not read, and said to be left out. Lock: none.
-- Index: undolog_undo_stack_session_position, primary key.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT one.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY stack_position DESC) AS place,
    sum(text_bytes) OVER (ORDER BY stack_position DESC) AS texts
  FROM (
    SELECT u.undo_id, u.stack_position,
      COALESCE(octet_length(last_error), 0) + COALESCE(octet_length(skip_reason), 0) AS text_bytes,
      COALESCE(octet_length(compensation_args_raw), pg_column_size(compensation_args)) AS stored
    FROM undolog_undo_stack u
    WHERE u.org_id = $1 AND u.session_id = $2
      AND u.stack_position < COALESCE($3::int::bigint, 2147483648)
    ORDER BY u.stack_position DESC
    LIMIT $4
  ) AS one
), keys AS MATERIALIZED (
  SELECT array_agg(undo_id ORDER BY stored, place) AS ids, count(*) AS many
  FROM page WHERE place = 1 OR texts <= $5
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (
    SELECT COALESCE(octet_length(compensation_args_raw), octet_length(compensation_args::text))
    FROM undolog_undo_stack u WHERE u.undo_id = k.ids[f.place + 1] AND u.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.many AND f.bytes <= $6
), shown AS MATERIALIZED (
  SELECT array_agg(k.ids[f.place]) AS ids
  FROM fitting f CROSS JOIN keys k WHERE f.place > 0 AND f.bytes <= $6
)
SELECT u.*, p.matched
FROM page p
CROSS JOIN shown s
CROSS JOIN LATERAL (
  SELECT undo_id, effect_id, attempt, stack_position AS position, compensation_fn,
    compensation_version, CASE WHEN is_shown THEN compensation_args::text END AS args_text,
    CASE WHEN is_shown THEN compensation_args_raw END AS args_raw, NOT is_shown AS args_left_out,
    state, retry_count, max_retries, retry_backoff_ms, last_error, last_error_raw, skip_reason,
    registered_at, compensated_at, next_try_at
  FROM undolog_undo_stack w, (SELECT COALESCE(p.undo_id = ANY (s.ids), false) AS is_shown) AS a
  WHERE w.undo_id = p.undo_id AND w.org_id = $1
  OFFSET 0
) AS u
WHERE p.place = 1 OR p.texts <= $5
ORDER BY p.place
