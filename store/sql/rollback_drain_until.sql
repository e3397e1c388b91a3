-- When nothing in scope can still be running: the last lease end of a live grant, or the end of an
-- unknown effect's settling time. NULL: the drain is over. A time that is past means that the
-- sweep has not turned the grant into unknown yet (or may not: our service was away), so the walk
-- looks again shortly. What lies ahead of the clock was written before it stepped back, and counts
-- from now: nothing waits for the clock to come back.
-- Lock: the session's lock is held. Index: idx_undolog_effect_log_session of the session's months.
SELECT max(CASE
    WHEN e.state IN ('executing', 'approved') THEN greatest(
      least(greatest(e.lease_renewed_at,
          (SELECT resumed_at FROM undolog_service WHERE service = 'engine')), $5::timestamptz)
        + e.lease_ms * interval '1 millisecond',
      $5::timestamptz + interval '500 milliseconds')
    ELSE least(greatest(e.lost_at,
        (SELECT resumed_at FROM undolog_service WHERE service = 'engine')), $5::timestamptz)
      + COALESCE($6::bigint, e.lease_ms, 0) * interval '1 millisecond'
  END)
FROM undolog_effect_log e
WHERE e.session_id = $1 AND e.org_id = $2 AND e.executed_at BETWEEN $3 AND $7 AND e.position >= $4
  AND (e.state = 'executing' OR (e.state = 'approved' AND e.lease_ms IS NOT NULL)
    OR (e.state = 'unknown'
      AND least(greatest(e.lost_at,
          (SELECT resumed_at FROM undolog_service WHERE service = 'engine')), $5::timestamptz)
        + COALESCE($6::bigint, e.lease_ms, 0) * interval '1 millisecond' > $5::timestamptz))
