-- Begins a session by its first call, unless its id is taken.
-- Promise: an id that another organisation holds changes nothing and shows nothing.
-- Lock: none yet; the caller locks the row next. Index: primary key.
INSERT INTO undolog_sessions (session_id, org_id, principal, implicit, via_proxy, project_id,
  started_at, last_rpc_at, session_month)
SELECT $1, $2, $3, true, $4, $5, c.t, c.t, date_trunc('month', c.t AT TIME ZONE 'UTC')::date
FROM (SELECT clock_timestamp() AS t) c
ON CONFLICT (session_id) DO NOTHING
