-- Writes one version of a compensation; a row only when something changed.
-- Promise: true for a new version, false for a changed one, no row for one that stood like this.
-- Lock: the organisation's row, held by the caller. Index: undolog_compensation_registry_unique.
INSERT INTO undolog_compensation_registry AS r (org_id, fn_name, fn_version, description, fn_body,
  args_schema, max_retries, retry_backoff_ms, open, registered_by, concurrency_max, rate_per_minute,
  result_from)
VALUES ($1, $2, $3, $4, $5::text::jsonb, $6::text::jsonb, $7, $8, $9, $10, $11,
  $12, $13)
ON CONFLICT ON CONSTRAINT undolog_compensation_registry_unique DO UPDATE SET
  description = EXCLUDED.description, fn_body = EXCLUDED.fn_body,
  args_schema = EXCLUDED.args_schema, max_retries = EXCLUDED.max_retries,
  retry_backoff_ms = EXCLUDED.retry_backoff_ms, open = EXCLUDED.open, is_active = true,
  registered_by = EXCLUDED.registered_by, concurrency_max = EXCLUDED.concurrency_max,
  rate_per_minute = EXCLUDED.rate_per_minute, result_from = EXCLUDED.result_from
WHERE (r.description, r.fn_body, r.args_schema, r.max_retries, r.retry_backoff_ms, r.open,
    r.is_active, r.concurrency_max, r.rate_per_minute, r.result_from)
  IS DISTINCT FROM (EXCLUDED.description, EXCLUDED.fn_body, EXCLUDED.args_schema,
    EXCLUDED.max_retries, EXCLUDED.retry_backoff_ms, EXCLUDED.open, true,
    EXCLUDED.concurrency_max, EXCLUDED.rate_per_minute, EXCLUDED.result_from)
RETURNING r.xmax = 0
