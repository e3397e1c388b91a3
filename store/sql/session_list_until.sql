-- Where the reading for one page of a principal's sessions of an external run ($3) ends: at most so
-- many rows of each state ($6) behind a place in the order of the list ($4, $5).
-- Promise: no row when fewer are left of each state. Lock: none. Index: idx_undolog_sessions_of_run.
SELECT one.started_at AS at, one.session_id AS id
FROM (SELECT DISTINCT unnest(COALESCE($2::text[]::undolog_session_state[],
  enum_range(NULL::undolog_session_state)))) AS wanted (state)
CROSS JOIN LATERAL (
  SELECT s.started_at, s.session_id FROM undolog_listed_sessions s
  WHERE s.external_run_id = $3 AND s.org_id = $1
    AND s.state BETWEEN wanted.state AND wanted.state
    AND (s.started_at, s.session_id) < (COALESCE($4::timestamptz, 'infinity'),
      COALESCE($5::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
  ORDER BY s.state, s.started_at DESC, s.session_id DESC
  OFFSET $6 LIMIT 1) AS one
ORDER BY one.started_at DESC, one.session_id DESC
LIMIT 1
