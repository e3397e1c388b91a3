-- Makes a key: only its digest is kept.
-- Promise: one row. Lock: none. Index: undolog_api_keys_hash_unique.
INSERT INTO undolog_api_keys (org_id, key_hash, key_hint, role, principal, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7 * interval '1 second')
RETURNING key_id, org_id, key_hint, role, principal, created_at, created_by, expires_at, revoked_at
