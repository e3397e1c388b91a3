-- Closes breakers by hand: of a compensation ($2), at a host ($3), or of the one at the other.
-- Promise: calls of before do not count against the route any more; what is closed stays as it is.
-- Lock: the breakers' rows. Index: primary key.
UPDATE undolog_route_breakers SET state = 'closed', window_started_at = clock_timestamp(),
  calls = 0, failures = 0, opened_at = NULL, probe_undo_id = NULL, opened_count = 0
WHERE org_id = $1 AND state <> 'closed'
  AND ($2 = '' OR compensation_fn = $2) AND ($3 = '' OR host = $3)
