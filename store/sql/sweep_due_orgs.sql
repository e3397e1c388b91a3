-- Organisations with something of a kind that may be due.
-- Promise: no payload, over all organisations; whether it is over is decided per organisation, by
-- the one predicate of every expiry. Lock: none. Index: the partial indexes under undolog_due.
SELECT DISTINCT org_id FROM undolog_due
WHERE kind = $1 AND due_at <= clock_timestamp() - $2 * interval '1 millisecond'
