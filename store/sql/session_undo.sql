-- Reads a session's undo stack as it is shown, from the highest position down, below a position ($3;
-- NULL: from the top), up to a number of rows ($4) and of bytes of text ($5; the first row always).
-- Arguments are shown of the smallest first, as long as they fit into so many bytes ($6).
-- Promise: only entries of the organisation; matched counts the rows before the cut by bytes;
-- arguments that do not fit are not read, and said to be left out. Lock: none.
-- Index: undolog_undo_stack_session_position.
WITH page AS (
  SELECT u.*
  FROM undolog_undo_stack u
  WHERE u.org_id = $1 AND u.session_id = $2 AND ($3::int IS NULL OR u.stack_position < $3)
  ORDER BY u.stack_position DESC
  LIMIT $4
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY stack_position DESC) AS place,
    sum(COALESCE(octet_length(last_error), 0) + COALESCE(octet_length(skip_reason), 0))
      OVER (ORDER BY stack_position DESC) AS texts,
    COALESCE(octet_length(compensation_args_raw), octet_length(compensation_args::text)) AS bytes
  FROM page
), fitting AS (
  SELECT sized.*, sum(bytes) OVER (ORDER BY bytes, place) > $6 AS args_left_out
  FROM sized
  WHERE place = 1 OR texts <= $5
)
SELECT undo_id, effect_id, attempt, stack_position AS position, compensation_fn,
  compensation_version,
  CASE WHEN NOT args_left_out THEN compensation_args::text END AS args_text,
  CASE WHEN NOT args_left_out THEN compensation_args_raw END AS args_raw, args_left_out,
  state, retry_count, max_retries, retry_backoff_ms, last_error, last_error_raw, skip_reason,
  registered_at, compensated_at, next_try_at, matched
FROM fitting
ORDER BY place
