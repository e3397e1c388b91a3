-- What the brake compares, for each class of leases: the sessions of the class that failed by their
-- lease within it, and those that live. Silence of an implicit session counts as 15 minutes.
-- Promise: reads what failed within the longest class, and no more live sessions than it takes to
-- decide: ten for each one that is lost or failed. Lock: none.
-- Index: idx_undolog_sessions_lost, idx_undolog_sessions_live.
SELECT c.class, f.failed,
  f.failed + (SELECT count(*) FROM (
    SELECT FROM undolog_sessions s
    WHERE s.org_id = $1 AND s.state IN ('active', 'awaiting_approval')
      AND s.lease_ms <= c.class AND s.lease_ms > c.above
    -- In the index's order, so that it is the one that is read.
    ORDER BY s.org_id, s.lease_ms LIMIT 10 * (c.lost + f.failed) + 1) AS counted)
  + (SELECT count(*) FROM (
    SELECT FROM undolog_sessions s
    WHERE s.org_id = $1 AND s.state IN ('active', 'awaiting_approval')
      AND s.lease_ms IS NULL AND c.class = undolog_lease_class(900000)
    ORDER BY s.org_id, s.lease_ms LIMIT 10 * (c.lost + f.failed) + 1) AS counted) AS live
FROM (SELECT class, lost, CASE WHEN class <= 300000 THEN 0 ELSE class / 2 END AS above
  FROM unnest($2::bigint[], $3::bigint[]) AS u (class, lost) OFFSET 0) c
CROSS JOIN LATERAL (
  SELECT count(*) AS failed FROM undolog_sessions s
  WHERE s.org_id = $1
    AND s.lease_failed_at > (SELECT clock_timestamp()) - c.class * interval '1 millisecond'
    AND undolog_lease_class(COALESCE(s.lease_ms, 900000)) = c.class) f
