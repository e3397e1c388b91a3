-- Where the reading for one page of unknown effects ends: so many rows ($4) behind a place in the order
-- of the list ($2, $3).
-- Promise: no row when fewer are left. Lock: none.
-- Index: idx_undolog_effect_log_uncertain of each partition.
SELECT e.since AS at, e.effect_id AS id
FROM undolog_listed_unknown e
WHERE e.org_id = $1 AND (e.since, e.effect_id) > (COALESCE($2::timestamptz, '-infinity'),
  COALESCE($3::uuid, '00000000-0000-0000-0000-000000000000'))
ORDER BY e.since, e.effect_id
OFFSET $4 LIMIT 1
