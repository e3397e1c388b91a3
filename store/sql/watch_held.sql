-- Whether an organisation has events that were decided and are held back: some transaction of the
-- database cluster that began before them is still open.
-- Promise: reads one event. Lock: none. Index: idx_undolog_effect_events_org of each partition.
SELECT EXISTS (
  SELECT FROM undolog_effect_events e
  WHERE e.org_id = $1
    AND (e.epoch, e.tx) >= ((SELECT epoch FROM undolog_cluster),
      pg_snapshot_xmin(pg_current_snapshot())))
