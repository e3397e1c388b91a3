-- Begins a session with a lease, unless its id is taken.
-- Promise: an id that another organisation holds changes nothing and shows nothing.
-- A lease counts from the clock, and not before the engines' last tick.
-- Lock: none yet; the caller locks the row next. Index: primary key.
INSERT INTO undolog_sessions (session_id, org_id, principal, implicit, via_proxy, project_id,
  agent_name, external_run_id, metadata, metadata_raw, lease_ms, lease_renewed_at,
  on_tool_failure, on_rejection, on_unknown, started_at, last_rpc_at, session_month)
SELECT $1, $2, $3, false, $4, $5, $6, $7, $8::text::jsonb, $9, $10,
  greatest(c.t, c.ticked_at), $11, $12, $13, c.t, greatest(c.t, c.ticked_at),
  date_trunc('month', c.t AT TIME ZONE 'UTC')::date
FROM (SELECT clock_timestamp() AS t,
  (SELECT last_tick_at FROM undolog_service WHERE service = 'engine') AS ticked_at) c
ON CONFLICT (session_id) DO NOTHING
