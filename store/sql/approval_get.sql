-- Reads an approval request as it is shown.
-- Promise: only a request of the organisation and, when a principal is given ($3), only of its own
-- session. Lock: none. Index: primary keys; that of each partition from the session's start on.
SELECT a.approval_request_id AS approval_id, a.session_id, a.effect_id, a.tool_name,
  COALESCE(e.tool_version, '') AS tool_version, a.state::text AS state, a.irreversibility_reason,
  a.risk_tags, a.estimated_impact, a.proposed_args::text AS proposed_text,
  a.proposed_args_raw AS proposed_raw, a.approved_args::text AS approved_text,
  a.approved_args_raw AS approved_raw, a.agent_context::text AS context_text,
  a.agent_context_raw AS context_raw, a.created_at, a.timeout_at, a.auto_approve_on_timeout,
  a.resolved_at, a.resolved_by, a.quorum, a.granted_at, a.voided_at,
  COALESCE(e.state::text, '') AS effect_state, a.requested_by, a.requester_may_approve,
  (SELECT count(*) FROM undolog_approval_votes v
    WHERE v.approval_request_id = a.approval_request_id AND v.org_id = $1
      AND v.round = (SELECT max(w.round) FROM undolog_approval_votes w
        WHERE w.approval_request_id = a.approval_request_id AND w.org_id = $1)) AS ballots,
  1::bigint AS matched
FROM undolog_approval_requests a
JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = a.org_id
LEFT JOIN undolog_effect_log e
  ON e.effect_id = a.effect_id AND e.org_id = $1 AND e.executed_at >= s.started_at
WHERE a.org_id = $1 AND a.approval_request_id = $2 AND ($3::text IS NULL OR s.principal = $3)
