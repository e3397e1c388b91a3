-- Lists approved calls of upstream tools that nobody was granted yet, the oldest decision first,
-- after a place in that order ($2, $3), up to a number of rows ($4) and of bytes ($5; the first row
-- always).
-- Promise: only calls of the organisation whose tool has an endpoint and lets a proxy run it; matched
-- counts the rows before the cut by bytes. Lock: none, the grant decides.
-- Index: idx_undolog_approval_unused.
WITH page AS (
  SELECT a.approval_request_id AS approval_id, a.resolved_at, e.session_id, e.effect_id,
    e.tool_name, e.tool_version, e.step_index, g.step_key, a.proposed_args, a.proposed_args_raw
  FROM undolog_approval_requests a
  JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = a.org_id
  JOIN undolog_effect_log e
    ON e.effect_id = a.effect_id AND e.org_id = a.org_id AND e.executed_at >= s.started_at
  JOIN undolog_tool_registry t ON t.tool_id = e.tool_id AND t.org_id = a.org_id
  JOIN undolog_signatures g ON g.session_month = s.session_month AND g.session_id = s.session_id
    AND g.call_signature = e.call_signature
  WHERE a.org_id = $1 AND a.state IN ('approved', 'auto_approved') AND a.granted_at IS NULL
    AND a.voided_at IS NULL AND e.state = 'approved' AND t.upstream IS NOT NULL
    AND t.execute_on_approval AND t.is_active
    AND ($2::timestamptz IS NULL OR (a.resolved_at, a.approval_request_id) > ($2, $3::uuid))
  ORDER BY a.resolved_at, a.approval_request_id
  LIMIT $4
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY resolved_at, approval_id) AS place,
    sum(COALESCE(octet_length(proposed_args_raw), octet_length(proposed_args::text)))
      OVER (ORDER BY resolved_at, approval_id) AS bytes
  FROM page
)
SELECT approval_id, resolved_at, session_id, effect_id, tool_name, tool_version, step_index,
  step_key, proposed_args::text AS args_text, proposed_args_raw AS args_raw, matched
FROM sized
WHERE place = 1 OR bytes <= $5
ORDER BY place
