-- Lists approval requests from the newest on, after a place in that order ($5, $6), up to a number
-- of rows ($7) and of bytes ($8; the first row always).
-- Promise: only requests of the organisation and, when a principal is given ($2), only those of its
-- own sessions; matched counts the rows before the cut by bytes. Each state is read from its newest on
-- and no further than the page goes, or than the reading for one page may ($9, $10: the last row of
-- it), and no request is rendered behind the first one that does not fit. Lock: none. A state is named
-- by a range of itself, so that only an index that begins with it gives the order.
-- Index: idx_undolog_approval_listed, with a session ($4) idx_undolog_approval_session; primary keys.
WITH RECURSIVE page AS MATERIALIZED (
  SELECT one.created_at, one.approval_request_id
  FROM (SELECT DISTINCT unnest($3::text[]::undolog_approval_state[])) AS wanted (state)
  CROSS JOIN LATERAL (
    (SELECT a.created_at, a.approval_request_id
      FROM undolog_listed_approvals a
      WHERE $4::uuid IS NULL AND a.org_id = $1 AND a.state BETWEEN wanted.state AND wanted.state
        AND ($2::text IS NULL OR $2 = (SELECT s.principal FROM undolog_sessions s
          WHERE s.session_id = a.session_id AND s.org_id = $1))
        AND (a.created_at, a.approval_request_id) < (COALESCE($5::timestamptz, 'infinity'),
          COALESCE($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        AND (a.created_at, a.approval_request_id) >= (COALESCE($9::timestamptz, '-infinity'),
          COALESCE($10::uuid, '00000000-0000-0000-0000-000000000000'))
      ORDER BY a.state DESC, a.created_at DESC, a.approval_request_id DESC LIMIT $7)
    UNION ALL
    (SELECT a.created_at, a.approval_request_id
      FROM undolog_approval_requests a
      WHERE a.session_id = $4 AND a.org_id = $1 AND a.state = wanted.state
        AND ($2::text IS NULL OR $2 = (SELECT s.principal FROM undolog_sessions s
          WHERE s.session_id = $4 AND s.org_id = $1))
        AND (a.created_at, a.approval_request_id) < (COALESCE($5::timestamptz, 'infinity'),
          COALESCE($6::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
      ORDER BY a.created_at DESC, a.approval_request_id DESC LIMIT $7)
  ) AS one
  ORDER BY one.created_at DESC, one.approval_request_id DESC
  LIMIT $7
), keys AS MATERIALIZED (
  SELECT array_agg(approval_request_id ORDER BY created_at DESC, approval_request_id DESC) AS ids,
    count(*) AS matched
  FROM page
), fitting AS (
  SELECT 0 AS place, 0::bigint AS bytes
  UNION ALL
  SELECT f.place + 1, f.bytes + (
    SELECT octet_length(proposed_args::text) + COALESCE(octet_length(proposed_args_raw), 0)
      + COALESCE(octet_length(approved_args::text), 0)
      + COALESCE(octet_length(approved_args_raw), 0) + octet_length(agent_context::text)
      + COALESCE(octet_length(agent_context_raw), 0) + octet_length(irreversibility_reason)
      + COALESCE(octet_length(estimated_impact), 0) + octet_length(risk_tags::text)
    FROM undolog_approval_requests a
    WHERE a.approval_request_id = k.ids[f.place + 1] AND a.org_id = $1)
  FROM fitting f
  CROSS JOIN keys k
  WHERE f.place < k.matched AND (f.place = 0 OR f.bytes <= $8)
)
SELECT a.*, k.matched
FROM fitting f
CROSS JOIN keys k
CROSS JOIN LATERAL (
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
          WHERE w.approval_request_id = a.approval_request_id AND w.org_id = $1)) AS ballots
  FROM undolog_approval_requests a
  CROSS JOIN LATERAL (
    SELECT o.started_at FROM undolog_sessions o
    WHERE o.session_id = a.session_id AND o.org_id = $1 OFFSET 0) AS s
  LEFT JOIN LATERAL (
    SELECT l.tool_version, l.state FROM undolog_effect_log l
    WHERE l.effect_id = a.effect_id AND l.org_id = $1
      AND l.executed_at BETWEEN s.started_at AND a.created_at
    OFFSET 0) AS e ON true
  WHERE a.approval_request_id = k.ids[f.place] AND a.org_id = $1
  OFFSET 0
) AS a
WHERE f.place = 1 OR f.place > 1 AND f.bytes <= $8
ORDER BY f.place
