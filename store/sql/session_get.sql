-- Reads a session as it is shown.
-- Promise: only a session of the organisation and, when a principal is given ($3), only its own.
-- Lock: none. Index: primary key; idx_undolog_dead_letters_session.
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
  1::bigint AS matched
FROM undolog_sessions s
WHERE s.org_id = $1 AND s.session_id = $2 AND ($3::text IS NULL OR s.principal = $3)
