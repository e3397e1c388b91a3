-- Whether an endpoint has ever said by a success status that a compensation was done, as far as its
-- newest calls tell.
-- Promise: reads at most a hundred rows. Lock: none. Index: idx_undolog_undo_attempts_started.
SELECT EXISTS (
  SELECT FROM (
    SELECT a.status FROM undolog_undo_attempts a
    WHERE a.org_id = $1 AND a.compensation_fn = $2
    ORDER BY a.started_at DESC LIMIT 100) AS newest
  WHERE newest.status BETWEEN 200 AND 299)
