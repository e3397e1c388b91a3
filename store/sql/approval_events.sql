-- Reads the decisions about an approval request as they are shown, the first one first, after a place
-- in that order ($3, $4), up to a number of rows ($5) and of bytes of text ($6; the first row always).
-- Edits are shown of the smallest first, as long as they fit into so many bytes ($7).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes; an edit
-- that does not fit is not read, and said to be left out. Lock: none.
-- Index: idx_undolog_approval_events_request.
WITH page AS (
  SELECT e.*
  FROM undolog_approval_events e
  WHERE e.approval_request_id = $1 AND e.org_id = $2
    AND ($3::timestamptz IS NULL OR (e.occurred_at, e.event_id) > ($3, $4::uuid))
  ORDER BY e.occurred_at, e.event_id
  LIMIT $5
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY occurred_at, event_id) AS place,
    sum(COALESCE(octet_length(note), 0) + octet_length(actor)
      + COALESCE(octet_length(claimed_actor), 0)) OVER (ORDER BY occurred_at, event_id) AS texts,
    COALESCE(octet_length(args_diff::text), 0) AS bytes
  FROM page
), fitting AS (
  SELECT sized.*, bytes > 0 AND sum(bytes) OVER (ORDER BY bytes, place) > $7 AS diff_left_out
  FROM sized
  WHERE place = 1 OR texts <= $6
)
SELECT event_id, action::text AS action, actor, claimed_actor, note,
  CASE WHEN NOT diff_left_out THEN args_diff::text END AS args_diff, diff_left_out, occurred_at,
  host(actor_ip) AS actor_ip, matched
FROM fitting
ORDER BY place
