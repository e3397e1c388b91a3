-- The numbers of an organisation's queue, each counted up to a number ($2).
-- Promise: one moment by the database's clock; a live rollback is due, running or waiting, one of
-- them, and the oldest ones are counted; no part reads more than that many rows of its list.
-- Lock: none. Index: idx_undolog_rollbacks_due_of_org, idx_undolog_sessions_listed,
-- idx_undolog_dead_letters_open, idx_undolog_effect_log_uncertain, idx_undolog_approval_listed,
-- idx_undolog_notifications_due.
SELECT r.due, COALESCE(r.oldest_due_age_ms, 0)::bigint AS oldest_due_age_ms, r.running, r.waiting,
  (SELECT count(*) FROM (
    SELECT FROM undolog_listed_sessions s
    WHERE s.org_id = $1 AND s.state BETWEEN 'halted' AND 'halted' LIMIT $2) AS one) AS halted,
  (SELECT count(*) FROM (
    SELECT d.session_id FROM undolog_dead_letters d
    WHERE d.org_id = $1 AND d.closed_at IS NULL
    ORDER BY d.created_at DESC LIMIT $2) AS d
    CROSS JOIN LATERAL (SELECT FROM undolog_sessions o
      WHERE o.session_id = d.session_id AND o.org_id = $1 AND o.settled_at IS NULL OFFSET 0) AS s)
    AS dead_letters_open,
  (SELECT count(*) FROM (
    SELECT e.session_id, e.state = 'unknown' AS is_unknown FROM undolog_listed_unknown e
    WHERE e.org_id = $1 ORDER BY e.since, e.effect_id LIMIT $2) AS e
    CROSS JOIN LATERAL (SELECT FROM undolog_sessions o
      WHERE o.session_id = e.session_id AND o.org_id = $1
        AND (e.is_unknown OR (o.settled_at IS NULL AND o.sealed_at IS NULL)) OFFSET 0) AS s)
    AS unknown,
  (SELECT count(*) FROM (
    SELECT FROM undolog_listed_approvals a
    WHERE a.org_id = $1 AND a.state BETWEEN 'pending' AND 'pending' LIMIT $2) AS one)
    AS approvals_pending,
  EXISTS (SELECT FROM undolog_pause_all) AS paused_everywhere,
  b.state AS brake_state,
  CASE WHEN b.state = 'raised' THEN b.hold_until END AS brake_hold_until,
  (SELECT count(*) FROM (
    SELECT FROM undolog_notifications n
    WHERE n.org_id = $1 AND n.state = 'pending' LIMIT $2) AS one) AS notifications_pending
FROM (
  SELECT count(*) FILTER (WHERE NOT is_held AND due_at <= t) AS due,
    extract(epoch FROM max(t - due_at) FILTER (WHERE NOT is_held AND due_at <= t)) * 1000
      AS oldest_due_age_ms,
    count(*) FILTER (WHERE is_held) AS running,
    count(*) FILTER (WHERE NOT is_held AND due_at > t) AS waiting
  FROM (
    SELECT due_at, now.t, COALESCE(lease_expires_at > now.t, false) AS is_held
    FROM undolog_rollbacks, (SELECT clock_timestamp() AS t OFFSET 0) AS now
    WHERE org_id = $1 AND state IN ('draining', 'walking')
    ORDER BY due_at LIMIT $2) AS one
) AS r
LEFT JOIN undolog_brakes b ON b.org_id = $1
