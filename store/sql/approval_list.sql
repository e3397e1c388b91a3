-- Lists approval requests from the newest on, after a place in that order ($5, $6), up to a number
-- of rows ($7) and of bytes ($8; the first row always).
-- Promise: only requests of the organisation and, when a principal is given ($2), only those of its
-- own sessions; matched counts the rows before the cut by bytes. Lock: none.
-- Index: idx_undolog_approval_listed, once per state, so that each is read from its newest on and no
-- further than the page goes.
WITH page AS (
  SELECT one.*
  FROM (SELECT DISTINCT unnest($3::text[]::undolog_approval_state[])) AS wanted (state)
  CROSS JOIN LATERAL (
    SELECT a.*, s.started_at
    FROM undolog_approval_requests a
    JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = a.org_id
    WHERE a.org_id = $1 AND a.state = wanted.state
      AND ($2::text IS NULL OR s.principal = $2)
      AND ($4::uuid IS NULL OR a.session_id = $4)
      AND ($5::timestamptz IS NULL OR (a.created_at, a.approval_request_id) < ($5, $6::uuid))
    ORDER BY a.created_at DESC, a.approval_request_id DESC
    LIMIT $7
  ) AS one
  ORDER BY one.created_at DESC, one.approval_request_id DESC
  LIMIT $7
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY created_at DESC, approval_request_id DESC) AS place,
    sum(octet_length(proposed_args::text) + COALESCE(octet_length(proposed_args_raw), 0)
      + COALESCE(octet_length(approved_args::text), 0)
      + COALESCE(octet_length(approved_args_raw), 0) + octet_length(agent_context::text)
      + COALESCE(octet_length(agent_context_raw), 0) + octet_length(irreversibility_reason)
      + COALESCE(octet_length(estimated_impact), 0) + octet_length(risk_tags::text))
      OVER (ORDER BY created_at DESC, approval_request_id DESC) AS bytes
  FROM page
)
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
  a.matched
FROM sized a
LEFT JOIN undolog_effect_log e
  ON e.effect_id = a.effect_id AND e.org_id = $1 AND e.executed_at >= a.started_at
WHERE a.place = 1 OR a.bytes <= $8
ORDER BY a.place
