-- Keeps a new API key, by its digest.
-- Promise: two keys never share a digest. Lock: none beyond the new row. Index: the unique one on
-- key_hash.
INSERT INTO undolog_api_keys (org_id, key_hash, key_hint, role, principal, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, session_user, clock_timestamp() + $6 * interval '1 second')
RETURNING key_id, org_id, key_hint, role, principal, created_at, created_by, expires_at, revoked_at
