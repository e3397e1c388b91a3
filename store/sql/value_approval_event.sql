-- Reads one decision about an approval request by its id as it is shown.
-- Promise: only a row of the organisation and, when a principal is given ($3), only of its own
-- session. Lock: none. Index: primary keys.
SELECT e.event_id, e.action::text AS action, e.actor, e.claimed_actor, e.note,
  e.args_diff::text AS args_diff, false AS diff_left_out, e.occurred_at,
  host(e.actor_ip) AS actor_ip, 1::bigint AS matched
FROM undolog_approval_events e
JOIN undolog_approval_requests a ON a.approval_request_id = e.approval_request_id AND a.org_id = $1
JOIN undolog_sessions s ON s.session_id = a.session_id AND s.org_id = $1
WHERE e.org_id = $1 AND e.event_id = $2 AND ($3::text IS NULL OR s.principal = $3)
