-- The sessions of an organisation's open dead letters that were made by a time ($2), in the order of
-- their ids from behind one ($3), one row for each letter, up to a number of rows ($4).
-- Promise: none. Lock: none. Index: idx_undolog_dead_letters_sessions.
SELECT d.session_id FROM undolog_dead_letters d
WHERE d.org_id = $1 AND d.closed_at IS NULL AND d.created_at <= $2
  AND d.session_id > COALESCE($3::uuid, '00000000-0000-0000-0000-000000000000')
ORDER BY d.session_id
LIMIT $4
