-- Makes a key with the role and principal of an old one, which ends after a grace period.
-- Promise: both or neither; a key that has ended is not rotated, and a rotated one never lives
-- longer than it would have. Lock: the old key's row. Index: primary key of undolog_api_keys.
WITH old AS (
  UPDATE undolog_api_keys
  SET expires_at = LEAST(expires_at, clock_timestamp() + $5 * interval '1 second')
  WHERE org_id = $1 AND key_id = $2 AND revoked_at IS NULL
    AND (expires_at IS NULL OR expires_at > clock_timestamp())
  RETURNING role, principal
)
INSERT INTO undolog_api_keys (org_id, key_hash, key_hint, role, principal, created_by)
SELECT $1, $3, $4, old.role, old.principal, session_user FROM old
RETURNING key_id, org_id, key_hint, role, principal, created_at, created_by, expires_at, revoked_at
