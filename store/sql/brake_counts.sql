-- What the brake compares: sessions failed by lease within the window, and those that lived at its
-- start (they still do, or ended within it).
-- Lock: none. Index: idx_undolog_sessions_org.
SELECT
  count(*) FILTER (WHERE s.lease_failed_at > w.starts_at) AS failed,
  count(*) FILTER (WHERE s.started_at <= w.starts_at
    AND (s.state IN ('active', 'awaiting_approval') OR s.completed_at > w.starts_at
      OR s.failed_at > w.starts_at)) AS live
FROM undolog_sessions s
CROSS JOIN (SELECT clock_timestamp() - $2 * interval '1 millisecond' AS starts_at) w
WHERE s.org_id = $1
