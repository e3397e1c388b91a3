-- What a principal has registered: versions of tools, versions of this tool, bytes of schemas, and
-- changes within a minute.
-- Promise: only rows of the organisation; bounded by the quotas themselves. Time: the database's
-- clock. Lock: the organisation's row, held by the caller. Index: undolog_tool_registry_unique.
SELECT count(*), count(*) FILTER (WHERE tool_name = $3),
  COALESCE(sum(octet_length(tool_schema::text)), 0)::bigint,
  count(*) FILTER (WHERE updated_at > (SELECT clock_timestamp()) - interval '1 minute')
FROM undolog_tool_registry
WHERE org_id = $1 AND registered_by = $2
