-- Reads one version of a compensation, active or not.
-- Promise: only a row of the organisation. Lock: none. Index: undolog_compensation_registry_unique.
SELECT compensation_id, fn_name, fn_version, description, fn_body::text AS fn_body,
  args_schema::text AS args_schema, max_retries, retry_backoff_ms, is_active, open, registered_at,
  concurrency_max, rate_per_minute, result_from,
  1::bigint AS matched
FROM undolog_compensation_registry
WHERE org_id = $1 AND fn_name = $2 AND fn_version = $3
