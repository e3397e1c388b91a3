-- Reads an organisation's events after a place in the order of epoch, transaction and event, up to
-- a number of rows ($5) and of bytes ($6; the first row always).
-- Promise: only what was decided before this snapshot's oldest open transaction ($7), so that
-- nothing can still appear below a row that was read; earlier epochs are decided in whole.
-- Lock: none. Index: idx_undolog_effect_events_org of each partition.
WITH page AS (
  SELECT e.session_id, e.seq, e.event_id, e.epoch, e.tx AS tx_order, e.tx::text AS tx, e.kind,
    e.subject, e.subject_id, e.from_state, e.to_state, e.attempt, e.actor, e.occurred_at,
    e.detail::text AS detail
  FROM undolog_effect_events e
  WHERE e.org_id = $1 AND (e.epoch, e.tx, e.event_id) > ($2, $3::text::xid8, $4::uuid)
    AND (NOT $7 OR e.epoch < (SELECT epoch FROM undolog_cluster)
      OR e.tx < pg_snapshot_xmin(pg_current_snapshot()))
  ORDER BY e.epoch, e.tx, e.event_id
  LIMIT $5
), sized AS (
  SELECT page.*, row_number() OVER (ORDER BY epoch, tx_order, event_id) AS place,
    sum(octet_length(detail)) OVER (ORDER BY epoch, tx_order, event_id) AS bytes
  FROM page
)
SELECT session_id, seq, event_id, epoch, tx, kind, subject, subject_id, from_state, to_state,
  attempt, actor, occurred_at, detail
FROM sized WHERE place = 1 OR bytes <= $6 ORDER BY place
