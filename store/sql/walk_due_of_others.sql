-- Rollbacks that are due and that nobody holds, of other organisations than these ($1), the oldest
-- first of the organisations that come next after one ($3), up to a number ($2).
-- Promise: no payload. However much waits, it reads at most $2 rows of each organisation that it
-- looks at, and looks at no further one after it has found $2 rows or visited $2 organisations: it
-- steps from one organisation to the next through the index, so that the backlog of those that are
-- left out is not read. Lock: none. Index: idx_undolog_rollbacks_due_of_org; an organisation is named by
-- a range of itself, so that the planner keeps to this index and filters no other's rows.
WITH RECURSIVE visited AS (
  SELECT $3::uuid AS org_id, 0::bigint AS found, 0 AS steps, false AS is_round
  UNION ALL
  SELECT n.org_id, v.found + f.found, v.steps + 1, v.is_round OR n.is_round
  FROM visited v
  CROSS JOIN LATERAL (
    SELECT COALESCE(o.above, CASE WHEN NOT v.is_round THEN o.first END) AS org_id,
      o.above IS NULL AS is_round
    FROM (SELECT
      (SELECT d.org_id FROM undolog_due_rollbacks d WHERE d.org_id > v.org_id
        ORDER BY d.org_id LIMIT 1) AS above,
      (SELECT d.org_id FROM undolog_due_rollbacks d ORDER BY d.org_id LIMIT 1) AS first
      OFFSET 0) AS o
    OFFSET 0
  ) AS n
  CROSS JOIN LATERAL (
    SELECT count(*) AS found FROM (
      SELECT FROM undolog_due_rollbacks d
      WHERE d.org_id BETWEEN n.org_id AND n.org_id AND NOT n.org_id = ANY ($1::uuid[])
        AND d.due_at <= (SELECT clock_timestamp())
        AND (d.lease IS NULL OR d.lease <= (SELECT clock_timestamp()))
      ORDER BY d.org_id, d.due_at LIMIT $2) AS due
  ) AS f
  WHERE v.found < $2 AND v.steps < $2 AND n.org_id IS NOT NULL
    AND (NOT (v.is_round OR n.is_round) OR n.org_id <= $3)
)
SELECT due.org_id, due.subject_id
FROM visited v
CROSS JOIN LATERAL (
  SELECT d.org_id, d.subject_id, d.due_at FROM undolog_due_rollbacks d
  WHERE d.org_id BETWEEN v.org_id AND v.org_id AND NOT v.org_id = ANY ($1::uuid[])
    AND d.due_at <= (SELECT clock_timestamp())
    AND (d.lease IS NULL OR d.lease <= (SELECT clock_timestamp()))
  ORDER BY d.org_id, d.due_at LIMIT $2
) AS due
WHERE v.steps > 0
ORDER BY due.due_at LIMIT $2
