-- Lists sessions from the newest on, after a place in that order ($5, $6), up to a number of rows
-- ($7) and of bytes ($8; the first row always).
-- Promise: only sessions of the organisation and, when a principal is given ($2), only its own;
-- settled ones are left out; matched counts the rows before the cut by bytes. Lock: none.
-- Index: idx_undolog_sessions_external with an external run, else idx_undolog_sessions_org.
WITH page AS (
  SELECT s.*
  FROM undolog_sessions s
  WHERE s.org_id = $1 AND s.settled_at IS NULL
    AND ($2::text IS NULL OR s.principal = $2)
    AND ($3::text[] IS NULL OR s.state::text = ANY($3))
    AND ($4::text IS NULL OR s.external_run_id = $4)
    AND ($5::timestamptz IS NULL OR (s.started_at, s.session_id) < ($5, $6::uuid))
  ORDER BY s.started_at DESC, s.session_id DESC
  LIMIT $7
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY started_at DESC, session_id DESC) AS place,
    sum(octet_length(metadata::text) + COALESCE(octet_length(metadata_raw), 0)
      + COALESCE(octet_length(failure_reason), 0))
      OVER (ORDER BY started_at DESC, session_id DESC) AS bytes
  FROM page
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
  s.matched
FROM sized s
WHERE s.place = 1 OR s.bytes <= $8
ORDER BY s.place
