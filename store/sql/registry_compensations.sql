-- Lists compensations after a place in the order of name and version, up to a number of rows ($4)
-- and of bytes ($5; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes.
-- Lock: none. Index: undolog_compensation_registry_unique.
WITH page AS (
  SELECT compensation_id, fn_name, fn_version, description, fn_body::text AS fn_body,
    args_schema::text AS args_schema, max_retries, retry_backoff_ms, is_active, open, registered_at,
    concurrency_max, rate_per_minute, result_from
  FROM undolog_compensation_registry
  WHERE org_id = $1 AND (fn_name, fn_version) > ($2, $3)
  ORDER BY fn_name, fn_version
  LIMIT $4
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY fn_name, fn_version) AS place,
    sum(octet_length(fn_body) + octet_length(args_schema) + octet_length(description))
      OVER (ORDER BY fn_name, fn_version) AS bytes
  FROM page
)
SELECT * FROM sized WHERE place = 1 OR bytes <= $5 ORDER BY place
