-- Implicit sessions of one organisation that were idle for its idle time.
-- Promise: a bounded number; none when the policy is to leave them. Lock: none; each one is locked
-- and judged again. Index: idx_undolog_sessions_state.
SELECT s.session_id
FROM undolog_sessions s
JOIN undolog_orgs o ON o.org_id = s.org_id
WHERE s.org_id = $1 AND s.state = 'active' AND s.implicit AND s.lease_ms IS NULL
  AND s.grant_lost_at IS NULL AND o.on_idle <> 'leave'
  AND undolog_lease_over(s.last_rpc_at, o.idle_session_seconds * 1000::bigint, s.via_proxy,
    clock_timestamp())
ORDER BY s.last_rpc_at LIMIT $2
