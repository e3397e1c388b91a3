-- Reads a session's events after a number, up to a number of rows ($5) and of bytes ($6; the first
-- row always).
-- Promise: numbers are taken under the session's lock, so none appears below one that was read.
-- Lock: none. Index: primary key of undolog_effect_events.
WITH page AS (
  SELECT session_id, seq, epoch, tx::text AS tx, kind, subject, subject_id, from_state,
    to_state, attempt, actor, occurred_at, detail::text AS detail
  FROM undolog_effect_events
  WHERE org_id = $1 AND session_id = $2 AND session_month = $3 AND seq > $4
  ORDER BY seq
  LIMIT $5
), sized AS (
  SELECT page.*, row_number() OVER (ORDER BY seq) AS place,
    sum(octet_length(detail)) OVER (ORDER BY seq) AS bytes
  FROM page
)
SELECT * FROM sized WHERE place = 1 OR bytes <= $6 ORDER BY place
