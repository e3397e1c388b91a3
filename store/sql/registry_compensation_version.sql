-- Reads one version of a compensation.
-- Promise: only a row of the organisation. Lock: none. Index: undolog_compensation_registry_unique.
SELECT compensation_id, fn_version, fn_body::text AS fn_body, args_schema::text AS args_schema,
  max_retries, retry_backoff_ms, open, is_active,
  concurrency_max, rate_per_minute, result_from
FROM undolog_compensation_registry
WHERE org_id = $1 AND fn_name = $2 AND fn_version = $3
