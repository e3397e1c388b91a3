-- Takes versions of a compensation ($3; empty: every one) out of use, or back into it ($4).
-- Promise: answers the versions that stood differently before, and leaves the others alone.
-- Lock: the organisation's row, held by the caller. Index: undolog_compensation_registry_unique.
UPDATE undolog_compensation_registry
SET is_active = $4, registered_by = $5
WHERE org_id = $1 AND fn_name = $2 AND ($3 = '' OR fn_version = $3) AND is_active <> $4
RETURNING fn_version
