-- How long the oldest transaction has been open that keeps dead rows from being removed, in seconds;
-- 0: there is none. Sessions that this role may not look at are left out.
-- Promise: none. Lock: none. Index: none, the server's sessions.
SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - began)), 0)::float8
FROM (
  SELECT xact_start AS began FROM pg_stat_activity
  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  UNION ALL
  SELECT prepared FROM pg_prepared_xacts
) AS open
