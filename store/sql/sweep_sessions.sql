-- Sessions of one organisation that are over by their lease, oldest first: begun ones whose lease
-- ran out, and implicit ones that lost a grant and were silent for 15 minutes, unless they hold.
-- Promise: a bounded number. Lock: none; each one is locked and judged again before it fails.
-- Index: idx_undolog_sessions_state.
SELECT s.session_id, COALESCE(s.lease_ms, $2) AS lease_ms,
  -- Kept alive by a live grant; an implicit one also when nothing is unknown any more.
  EXISTS (
    SELECT FROM undolog_effect_log e
    WHERE e.session_id = s.session_id AND e.org_id = $1 AND e.executed_at >= s.started_at
      AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL))
      AND NOT undolog_lease_over(e.lease_renewed_at, e.lease_ms, s.via_proxy, clock_timestamp()))
  OR (s.lease_ms IS NULL AND NOT EXISTS (
    SELECT FROM undolog_effect_log e
    WHERE e.session_id = s.session_id AND e.org_id = $1 AND e.executed_at >= s.started_at
      AND e.state = 'unknown')) AS is_kept
FROM undolog_sessions s
JOIN undolog_orgs o ON o.org_id = s.org_id
WHERE s.org_id = $1 AND s.state = 'active'
  AND (
    (s.lease_ms IS NOT NULL
      AND (s.lease_hold_until IS NULL OR s.lease_hold_until <= clock_timestamp())
      AND undolog_lease_over(s.lease_renewed_at, s.lease_ms, s.via_proxy, clock_timestamp()))
    OR (s.implicit AND s.lease_ms IS NULL AND s.grant_lost_at IS NOT NULL
      AND COALESCE(s.on_unknown, o.on_unknown) IS DISTINCT FROM 'hold'
      AND undolog_lease_over(s.last_rpc_at, $2, s.via_proxy, clock_timestamp())))
ORDER BY COALESCE(s.lease_renewed_at, s.last_rpc_at), s.session_id
LIMIT $3
