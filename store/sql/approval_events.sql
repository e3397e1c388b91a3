-- Reads the decisions about an approval request as they are shown, the first one first, after a place
-- in that order ($3, $4), up to a number of rows ($5) and of bytes of text ($6; the first row always).
-- Edits are shown of the smallest as stored first, as long as they fit into so many bytes ($7).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes; an edit
-- behind the first that does not fit is not read, and said to be left out. Lock: none.
-- Index: idx_undolog_approval_events_request, primary key.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT one.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY occurred_at, event_id) AS place,
    sum(text_bytes) OVER (ORDER BY occurred_at, event_id) AS texts
  FROM (
    SELECT e.event_id, e.occurred_at, e.args_diff IS NOT NULL AS has_diff,
      COALESCE(octet_length(note), 0) + octet_length(actor)
        + COALESCE(octet_length(claimed_actor), 0) AS text_bytes,
      pg_column_size(args_diff) AS stored
    FROM undolog_approval_events e
    WHERE e.approval_request_id = $1 AND e.org_id = $2
      AND ($3::timestamptz IS NULL OR (e.occurred_at, e.event_id) > ($3, $4::uuid))
    ORDER BY e.occurred_at, e.event_id
    LIMIT $5
  ) AS one
), keys AS MATERIALIZED (
  SELECT array_agg(event_id ORDER BY stored, place) AS ids, count(*) AS many
  FROM page WHERE (place = 1 OR texts <= $6) AND has_diff
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (SELECT octet_length(args_diff::text)
    FROM undolog_approval_events e WHERE e.event_id = k.ids[f.place + 1] AND e.org_id = $2)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.many AND f.bytes <= $7
), shown AS MATERIALIZED (
  SELECT array_agg(k.ids[f.place]) AS ids
  FROM fitting f CROSS JOIN keys k WHERE f.place > 0 AND f.bytes <= $7
)
SELECT e.*, p.matched
FROM page p
CROSS JOIN shown s
CROSS JOIN LATERAL (
  SELECT event_id, action::text AS action, actor, claimed_actor, note,
    CASE WHEN is_shown THEN args_diff::text END AS args_diff,
    p.has_diff AND NOT is_shown AS diff_left_out, occurred_at, host(actor_ip) AS actor_ip
  FROM undolog_approval_events w, (SELECT COALESCE(p.event_id = ANY (s.ids), false) AS is_shown) AS a
  WHERE w.event_id = p.event_id AND w.org_id = $2
  OFFSET 0
) AS e
WHERE p.place = 1 OR p.texts <= $6
ORDER BY p.place
