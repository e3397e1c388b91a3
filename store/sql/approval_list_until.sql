-- Where the reading for one page of a principal's approval requests ends: at most so many rows of each
-- state ($5) behind a place in the order of the list ($3, $4).
-- Promise: no row when fewer are left of each state. Lock: none. Index: idx_undolog_approval_listed.
SELECT one.created_at AS at, one.approval_request_id AS id
FROM (SELECT DISTINCT unnest($2::text[]::undolog_approval_state[])) AS wanted (state)
CROSS JOIN LATERAL (
  SELECT a.created_at, a.approval_request_id FROM undolog_listed_approvals a
  WHERE a.org_id = $1 AND a.state BETWEEN wanted.state AND wanted.state
    AND (a.created_at, a.approval_request_id) < (COALESCE($3::timestamptz, 'infinity'),
      COALESCE($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
  ORDER BY a.state DESC, a.created_at DESC, a.approval_request_id DESC
  OFFSET $5 LIMIT 1) AS one
ORDER BY one.created_at DESC, one.approval_request_id DESC
LIMIT 1
