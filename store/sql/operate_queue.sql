-- The numbers of an organisation's queue.
-- Promise: one moment by the database's clock; a live rollback is due, running or waiting, one of
-- them.
-- Lock: none. Index: idx_undolog_rollbacks_due, idx_undolog_sessions_state,
-- idx_undolog_dead_letters_open, idx_undolog_effect_log_uncertain, idx_undolog_approval_org_state,
-- idx_undolog_notifications_due.
SELECT r.due, COALESCE(r.oldest_due_age_ms, 0)::bigint AS oldest_due_age_ms, r.running, r.waiting,
  (SELECT count(*) FROM undolog_sessions s
    WHERE s.org_id = $1 AND s.state = 'halted' AND s.settled_at IS NULL) AS halted,
  (SELECT count(*) FROM undolog_dead_letters d
    JOIN undolog_sessions s ON s.session_id = d.session_id AND s.org_id = $1
    WHERE d.org_id = $1 AND d.closed_at IS NULL AND s.settled_at IS NULL) AS dead_letters_open,
  (SELECT count(*) FROM undolog_effect_log e
    JOIN undolog_sessions s ON s.session_id = e.session_id AND s.org_id = $1
    WHERE e.org_id = $1
      AND (e.state = 'unknown' OR (e.state = 'failed' AND e.outcome = 'maybe_applied'))
      AND (e.state = 'unknown' OR (s.settled_at IS NULL AND s.sealed_at IS NULL))) AS unknown,
  (SELECT count(*) FROM undolog_approval_requests a
    WHERE a.org_id = $1 AND a.state = 'pending') AS approvals_pending,
  EXISTS (SELECT FROM undolog_pause_all) AS paused_everywhere,
  b.state AS brake_state,
  CASE WHEN b.state = 'raised' THEN b.hold_until END AS brake_hold_until,
  (SELECT count(*) FROM undolog_notifications n
    WHERE n.org_id = $1 AND n.state = 'pending') AS notifications_pending
FROM (
  SELECT count(*) FILTER (WHERE NOT is_held AND due_at <= t) AS due,
    extract(epoch FROM max(t - due_at) FILTER (WHERE NOT is_held AND due_at <= t)) * 1000
      AS oldest_due_age_ms,
    count(*) FILTER (WHERE is_held) AS running,
    count(*) FILTER (WHERE NOT is_held AND due_at > t) AS waiting
  FROM (
    SELECT due_at, now.t, COALESCE(lease_expires_at > now.t, false) AS is_held
    FROM undolog_rollbacks, (SELECT clock_timestamp() AS t OFFSET 0) AS now
    WHERE org_id = $1 AND state IN ('draining', 'walking')) AS one
) AS r
LEFT JOIN undolog_brakes b ON b.org_id = $1
