-- Where the reading for one page of dead letters ends: so many rows ($6) behind a place in the order of
-- the list ($4, $5), among the open ones or the closed ones ($2).
-- Promise: no row when fewer are left. Lock: none. Index: idx_undolog_dead_letters_open or
-- idx_undolog_dead_letters_closed.
SELECT created_at AS at, dead_letter_id AS id FROM (
  (SELECT d.created_at, d.dead_letter_id FROM undolog_dead_letters d
    WHERE NOT $2 AND d.org_id = $1 AND d.closed_at IS NULL
      AND d.created_at <= (SELECT clock_timestamp()) - $3 * interval '1 second'
      AND d.created_at <= COALESCE($7::timestamptz, 'infinity')
      AND (d.created_at, d.dead_letter_id) < ($4::timestamptz, $5::uuid)
    ORDER BY d.created_at DESC, d.dead_letter_id DESC OFFSET $6 LIMIT 1)
  UNION ALL
  (SELECT d.created_at, d.dead_letter_id FROM undolog_dead_letters d
    WHERE $2 AND d.org_id = $1 AND d.closed_at IS NOT NULL
      AND d.created_at <= (SELECT clock_timestamp()) - $3 * interval '1 second'
      AND d.created_at <= COALESCE($7::timestamptz, 'infinity')
      AND (d.created_at, d.dead_letter_id) < ($4::timestamptz, $5::uuid)
    ORDER BY d.created_at DESC, d.dead_letter_id DESC OFFSET $6 LIMIT 1)
) AS one
