-- Sessions of one organisation that are over by their lease, the oldest of each class of leases first:
-- begun ones whose lease ran out, and implicit ones that lost a grant and were silent for 15 minutes,
-- unless they hold. With each, how many of its class are lost, however many are returned.
-- Promise: a bounded number of each class. Time: the database's clock and our ticks, read once.
-- Lock: none; each one is locked and judged again before it fails. Index:
-- idx_undolog_sessions_live, idx_undolog_effect_log_session of each session's months.
WITH k AS MATERIALIZED (
  SELECT c.t, undolog_running_since(false, c.t) AS direct, undolog_running_since(true, c.t) AS via
  FROM (SELECT clock_timestamp() AS t OFFSET 0) c
), live AS (
  SELECT s.session_id, s.lease_ms, s.via_proxy, s.started_at, s.last_executed_at, k.t,
    COALESCE(s.lease_ms, $2) AS class_ms, COALESCE(s.lease_renewed_at, s.last_rpc_at) AS renewed_at,
    CASE WHEN s.via_proxy THEN k.via ELSE k.direct END AS since
  FROM undolog_sessions s
  JOIN undolog_orgs o ON o.org_id = s.org_id
  CROSS JOIN k
  WHERE s.org_id = $1 AND s.state = 'active'
    AND ((s.lease_ms IS NOT NULL AND (s.lease_hold_until IS NULL OR s.lease_hold_until <= k.t))
      OR (s.implicit AND s.lease_ms IS NULL AND s.grant_lost_at IS NOT NULL
        AND COALESCE(s.on_unknown, o.on_unknown) IS DISTINCT FROM 'hold'))
), over AS MATERIALIZED (
  SELECT l.*,
    -- Kept alive by a live grant; an implicit one also when nothing is unknown any more.
    EXISTS (
      SELECT FROM undolog_effect_log e
      WHERE e.session_id = l.session_id AND e.org_id = $1
        AND e.executed_at BETWEEN l.started_at AND COALESCE(l.last_executed_at, l.started_at)
        AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
        AND l.t <= greatest(e.lease_renewed_at, l.since) + e.lease_ms * interval '1 millisecond')
    OR (l.lease_ms IS NULL AND NOT EXISTS (
      SELECT FROM undolog_effect_log e
      WHERE e.session_id = l.session_id AND e.org_id = $1
        AND e.executed_at BETWEEN l.started_at AND COALESCE(l.last_executed_at, l.started_at)
        AND e.state = 'unknown')) AS is_kept
  FROM live l
  WHERE l.since IS NOT NULL
    AND l.t > greatest(l.renewed_at, l.since) + l.class_ms * interval '1 millisecond'
), ranked AS (
  SELECT v.session_id, undolog_lease_class(v.class_ms) AS class, v.is_kept, v.renewed_at,
    count(*) FILTER (WHERE NOT v.is_kept) OVER (PARTITION BY undolog_lease_class(v.class_ms)) AS lost,
    row_number() OVER (PARTITION BY undolog_lease_class(v.class_ms), v.is_kept
      ORDER BY v.renewed_at, v.session_id) AS place
  FROM over v
)
SELECT r.session_id, r.class, r.is_kept, r.lost
FROM ranked r WHERE r.place <= $3
ORDER BY r.renewed_at, r.session_id
