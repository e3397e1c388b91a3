-- Takes versions of a tool ($3; empty: every one) out of use, or back into it ($4).
-- Promise: answers the versions that stood differently before, and leaves the others alone.
-- Lock: the organisation's row, held by the caller. Index: undolog_tool_registry_unique.
UPDATE undolog_tool_registry
SET is_active = $4, registered_by = $5, updated_at = clock_timestamp()
WHERE org_id = $1 AND tool_name = $2 AND ($3 = '' OR tool_version = $3) AND is_active <> $4
RETURNING tool_version
