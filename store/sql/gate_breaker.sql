-- Reads a breaker under its lock.
-- Promise: no row when somebody else holds the lock, so that nothing waits for it here.
-- Lock: the breaker's row, FOR NO KEY UPDATE SKIP LOCKED. Index: primary key.
SELECT b.state, b.opened_at, b.opened_count, b.probe_undo_id
FROM undolog_route_breakers b
WHERE b.org_id = $1 AND b.compensation_fn = $2 AND b.host = $3
FOR NO KEY UPDATE OF b SKIP LOCKED
