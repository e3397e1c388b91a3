-- Reads an organisation's events after a place in the order of epoch, transaction, session and
-- number, up to a number of rows ($6) and of bytes ($7; the first row always).
-- Promise: only what was decided before this snapshot's oldest open transaction ($8), so that
-- nothing can still appear below a row that was read; earlier epochs are decided in whole. Inside a
-- transaction the session's own numbers order the events: event ids of one millisecond are random.
-- What was visible in the snapshot where the stream started ($9) is over and left out.
-- Lock: none. Index: idx_undolog_effect_events_org of each partition. The epoch of now is asked for by
-- equality, since a scan ends at a bound of several columns only where the first one passes it: so
-- what is held back behind an open transaction is not read at each look.
WITH page AS (
  SELECT one.* FROM (
    (SELECT e.session_id, e.seq, e.epoch, e.tx AS tx_order, e.tx::text AS tx, e.kind, e.subject,
      e.subject_id, e.from_state, e.to_state, e.attempt, e.actor, e.occurred_at,
      e.detail::text AS detail
    FROM undolog_effect_events e
    WHERE e.org_id = $1 AND e.epoch < (SELECT epoch FROM undolog_cluster)
      AND (e.epoch, e.tx) >= ($2, $3::text::xid8)
      AND (e.epoch, e.tx, e.session_id, e.seq) > ($2, $3::text::xid8, $4::uuid, $5)
      AND ($9::text IS NULL OR NOT pg_visible_in_snapshot(e.tx, $9::text::pg_snapshot))
    ORDER BY e.epoch, e.tx, e.session_id, e.seq
    LIMIT $6)
    UNION ALL
    (SELECT e.session_id, e.seq, e.epoch, e.tx AS tx_order, e.tx::text AS tx, e.kind, e.subject,
      e.subject_id, e.from_state, e.to_state, e.attempt, e.actor, e.occurred_at,
      e.detail::text AS detail
    FROM undolog_effect_events e
    WHERE e.org_id = $1 AND e.epoch = (SELECT epoch FROM undolog_cluster)
      AND e.tx >= CASE WHEN $2 < (SELECT epoch FROM undolog_cluster) THEN '0'
        ELSE $3::text::xid8 END
      AND e.tx < CASE WHEN $8 THEN pg_snapshot_xmin(pg_current_snapshot())
        ELSE '9223372036854775807' END
      AND (e.epoch, e.tx, e.session_id, e.seq) > ($2, $3::text::xid8, $4::uuid, $5)
      AND ($9::text IS NULL OR NOT pg_visible_in_snapshot(e.tx, $9::text::pg_snapshot))
    ORDER BY e.epoch, e.tx, e.session_id, e.seq
    LIMIT $6)
  ) AS one
  ORDER BY one.epoch, one.tx_order, one.session_id, one.seq
  LIMIT $6
), sized AS (
  SELECT page.*, row_number() OVER (ORDER BY epoch, tx_order, session_id, seq) AS place,
    sum(octet_length(detail)) OVER (ORDER BY epoch, tx_order, session_id, seq) AS bytes
  FROM page
)
SELECT session_id, seq, epoch, tx, kind, subject, subject_id, from_state, to_state, attempt, actor,
  occurred_at, detail
FROM sized WHERE place = 1 OR bytes <= $7 ORDER BY place
