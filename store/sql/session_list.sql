-- Lists sessions from the newest on, after a place in that order ($5, $6), up to a number of rows
-- ($7) and of bytes ($8; the first row always).
-- Promise: only sessions of the organisation and, when a principal is given ($2), only its own;
-- settled ones are left out; matched counts the rows before the cut by bytes. Each state is read from
-- its newest on and no further than the page goes, and no row is rendered behind the first one that
-- does not fit. A principal's sessions of a run are read no further than the reading for one page may
-- ($9, $10: the last row of it). Lock: none. A state is named by a range of itself, so that only an
-- index that begins with it gives the order.
-- Index: idx_undolog_sessions_of_run with an external run ($4), idx_undolog_sessions_own with a
-- principal, else idx_undolog_sessions_listed; primary key.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT one.started_at, one.session_id
  FROM (SELECT DISTINCT unnest(COALESCE($3::text[]::undolog_session_state[],
    enum_range(NULL::undolog_session_state)))) AS wanted (state)
  CROSS JOIN LATERAL (
    (SELECT s.started_at, s.session_id FROM undolog_listed_sessions s
      WHERE $4::text IS NULL AND $2::text IS NULL
        AND s.org_id = $1 AND s.state BETWEEN wanted.state AND wanted.state
        AND (s.started_at, s.session_id) < (COALESCE($5::timestamptz, 'infinity'),
          COALESCE($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      ORDER BY s.state, s.started_at DESC, s.session_id DESC LIMIT $7)
    UNION ALL
    (SELECT s.started_at, s.session_id FROM undolog_listed_sessions s
      WHERE $4::text IS NULL AND s.principal = $2
        AND s.org_id = $1 AND s.state BETWEEN wanted.state AND wanted.state
        AND (s.started_at, s.session_id) < (COALESCE($5::timestamptz, 'infinity'),
          COALESCE($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      ORDER BY s.state, s.started_at DESC, s.session_id DESC LIMIT $7)
    UNION ALL
    (SELECT s.started_at, s.session_id FROM undolog_listed_sessions s
      WHERE s.external_run_id = $4 AND ($2::text IS NULL OR s.principal = $2)
        AND s.org_id = $1 AND s.state BETWEEN wanted.state AND wanted.state
        AND (s.started_at, s.session_id) < (COALESCE($5::timestamptz, 'infinity'),
          COALESCE($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        AND (s.started_at, s.session_id) >= (COALESCE($9::timestamptz, '-infinity'),
          COALESCE($10::uuid, '00000000-0000-0000-0000-000000000000'))
      ORDER BY s.state, s.started_at DESC, s.session_id DESC LIMIT $7)
  ) AS one
  ORDER BY one.started_at DESC, one.session_id DESC
  LIMIT $7
), keys AS MATERIALIZED (
  SELECT array_agg(session_id ORDER BY started_at DESC, session_id DESC) AS ids,
    count(*) AS matched
  FROM page
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (
    SELECT octet_length(metadata::text) + COALESCE(octet_length(metadata_raw), 0)
      + COALESCE(octet_length(failure_reason), 0)
    FROM undolog_sessions s WHERE s.session_id = k.ids[f.place + 1] AND s.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.matched AND (f.place = 0 OR f.bytes <= $8)
)
SELECT s.session_id, s.org_id, s.project_id, s.external_run_id, s.agent_name,
  s.state::text AS state, s.tool_calls_total, s.compensations_total, s.approvals_pending,
  s.started_at, s.completed_at, s.failed_at, s.failure_reason, s.failure_reason_raw,
  s.metadata::text AS metadata_text, s.metadata_raw, s.principal, s.implicit,
  CASE WHEN s.state = 'active' THEN greatest(s.lease_renewed_at
    + s.lease_ms * interval '1 millisecond', s.lease_hold_until) END AS lease_expires_at,
  s.residue_count, s.unverified_count, s.last_position, s.max_step, s.settled_at,
  (SELECT count(*) FROM undolog_dead_letters d
    WHERE d.org_id = $1 AND d.session_id = s.session_id AND d.closed_at IS NULL)
    AS dead_letters_open,
  k.matched
FROM fitting f
CROSS JOIN keys k
JOIN undolog_sessions s ON s.session_id = k.ids[f.place] AND s.org_id = $1
WHERE f.place = 1 OR f.bytes <= $8 AND f.place > 0
ORDER BY f.place
