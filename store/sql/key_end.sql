-- Ends a live key: at once, or after an overlap of $3 seconds.
-- Promise: never gives a key more time than it had; a revoked key is not found. Lock: the key's
-- row. Index: primary key.
UPDATE undolog_api_keys SET
  revoked_at = CASE WHEN $3 = 0 THEN clock_timestamp() END,
  expires_at = CASE WHEN $3 = 0 THEN expires_at
    ELSE least(expires_at, clock_timestamp() + $3 * interval '1 second') END
WHERE org_id = $1 AND key_id = $2 AND revoked_at IS NULL
RETURNING key_id, org_id, key_hint, role, principal, created_at, created_by, expires_at, revoked_at
