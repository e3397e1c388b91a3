-- 0025 clock_steps: what a step of a transaction writes while the database's clock steps back.
-- Its times come from the clock as it was when it had its lock, and lie ahead when it commits.
-- Safe on a live database: one column without a default, and functions replaced in place.
-- Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0025', 'Clocks: what was being written while the clock stepped back')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_cluster ADD COLUMN clock_back_at timestamptz;
COMMENT ON COLUMN undolog_cluster.clock_back_at IS
  'When the clock was last seen to have stepped back';

-- A due time was written by a clock that is ahead, also when only the step's own time was read from
-- it: due_from is the later of that and of the clock now.
CREATE OR REPLACE FUNCTION undolog_set_due_from() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.due_from := greatest(clock_timestamp(),
    NULLIF(current_setting('undolog.step_at', true), '')::timestamptz);
  RETURN NEW;
END $$;

-- As it was (0012), and for a minute after the clock was seen to have stepped back it looks again at
-- everything: a step that had read the clock before commits after the first look, or holds its row
-- meanwhile. Leases wait for a tick of the engines, from which they count anew: nothing is over before
-- it, and a clock that comes back at once must find them as they were.
CREATE OR REPLACE FUNCTION undolog_rewind(claim_ms bigint, rows_max int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  t constant timestamptz := clock_timestamp();
  edge constant timestamptz := t + interval '1 second';
  claim constant interval := claim_ms * interval '1 millisecond';
  seen undolog_cluster%ROWTYPE;
  has_stepped bool;
  is_back bool;
  has_ticked bool;
  is_more bool := false;
  changed bigint := 0;
  n bigint;
BEGIN
  SELECT * INTO seen FROM undolog_cluster FOR UPDATE;
  has_stepped := COALESCE(seen.clock_seen_at > edge, false);
  is_back := has_stepped
    OR COALESCE(t BETWEEN seen.clock_back_at AND seen.clock_back_at + interval '60 seconds', false);
  has_ticked := COALESCE((SELECT last_tick_at <= edge FROM undolog_service
    WHERE service = 'engine'), true);
  IF is_back AND has_ticked THEN
    WITH ahead AS (
      SELECT session_id FROM undolog_sessions
      WHERE state = 'active' AND (lease_renewed_at > edge OR last_rpc_at > edge)
      LIMIT rows_max FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE undolog_sessions s SET last_rpc_at = least(s.last_rpc_at, t),
      lease_renewed_at = CASE WHEN s.lease_renewed_at > t THEN t ELSE s.lease_renewed_at END
    FROM ahead WHERE s.session_id = ahead.session_id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    is_more := is_more OR n >= rows_max;

    WITH ahead AS (
      SELECT effect_id, executed_at FROM undolog_effect_log
      WHERE (state = 'executing' AND lease_renewed_at > edge)
        OR (state = 'approved' AND lease_renewed_at > edge)
        OR (state = 'unknown' AND (lost_at > edge OR probed_at > edge))
      LIMIT rows_max FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE undolog_effect_log e SET
      lease_renewed_at = CASE WHEN e.lease_renewed_at > t THEN t ELSE e.lease_renewed_at END,
      lost_at = CASE WHEN e.lost_at > t THEN t ELSE e.lost_at END,
      probed_at = CASE WHEN e.probed_at > t THEN t ELSE e.probed_at END
    FROM ahead WHERE e.effect_id = ahead.effect_id AND e.executed_at = ahead.executed_at;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    is_more := is_more OR n >= rows_max;

  END IF;
  IF is_back THEN
    UPDATE undolog_breakers b SET window_started_at = least(b.window_started_at, t),
      opened_at = CASE WHEN b.opened_at > t THEN t ELSE b.opened_at END
    WHERE b.window_started_at > edge OR b.opened_at > edge;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;

    UPDATE undolog_route_breakers b SET window_started_at = least(b.window_started_at, t),
      opened_at = CASE WHEN b.opened_at > t THEN t ELSE b.opened_at END
    WHERE b.window_started_at > edge OR b.opened_at > edge;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;

    UPDATE undolog_brakes b SET raised_at = least(b.raised_at, t),
      hold_until = CASE WHEN b.raised_at > t THEN t + (b.hold_until - b.raised_at)
        ELSE b.hold_until END,
      last_failed_at = CASE WHEN b.last_failed_at > t THEN t ELSE b.last_failed_at END
    WHERE b.raised_at > edge OR b.last_failed_at > edge;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;

    -- A ticket that wakes somebody too early costs one look.
    WITH ahead AS (
      SELECT id FROM apalis.jobs WHERE status = 'Pending' AND run_at > edge
      LIMIT rows_max FOR UPDATE SKIP LOCKED)
    UPDATE apalis.jobs j SET run_at = t FROM ahead WHERE j.id = ahead.id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    is_more := is_more OR n >= rows_max;
  END IF;

  -- A clock that went ahead and came back between two looks leaves only these behind.
  IF is_back OR seen.clock_checked_at IS NULL
    OR abs(extract(epoch FROM t - seen.clock_checked_at)) >= 60 THEN
    WITH ahead AS (
      SELECT rollback_id, session_id, due_from - t AS by FROM undolog_rollbacks
      WHERE state IN ('draining', 'walking') AND due_at > edge AND due_from > edge
      LIMIT rows_max FOR NO KEY UPDATE SKIP LOCKED),
    entries AS (
      UPDATE undolog_undo_stack u SET next_try_at = greatest(u.next_try_at - ahead.by, t)
      FROM ahead
      WHERE u.session_id = ahead.session_id AND u.state IN ('pending', 'running')
        AND u.next_try_at > edge)
    UPDATE undolog_rollbacks r SET due_at = t + greatest(r.due_at - r.due_from, interval '0')
    FROM ahead WHERE r.rollback_id = ahead.rollback_id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    is_more := is_more OR n >= rows_max;

    WITH ahead AS (
      SELECT rollback_id FROM undolog_rollbacks
      WHERE state IN ('draining', 'walking') AND lease_expires_at > edge + claim
      LIMIT rows_max FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE undolog_rollbacks r SET lease_expires_at = t + claim
    FROM ahead WHERE r.rollback_id = ahead.rollback_id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;

    WITH ahead AS (
      SELECT notification_id FROM undolog_notifications
      WHERE state = 'pending' AND due_at > edge AND due_from > edge
      LIMIT rows_max FOR UPDATE SKIP LOCKED)
    UPDATE undolog_notifications m SET due_at = t + greatest(m.due_at - m.due_from, interval '0')
    FROM ahead WHERE m.notification_id = ahead.notification_id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;
    is_more := is_more OR n >= rows_max;

    WITH ahead AS (
      SELECT notification_id FROM undolog_notifications
      WHERE state = 'pending' AND lease_expires_at > edge + claim
      LIMIT rows_max FOR UPDATE SKIP LOCKED)
    UPDATE undolog_notifications m SET lease_expires_at = t + claim
    FROM ahead WHERE m.notification_id = ahead.notification_id;
    GET DIAGNOSTICS n = ROW_COUNT;
    changed := changed + n;

    UPDATE undolog_cluster SET clock_checked_at = t;
  END IF;

  -- As long as it looks stepped back, the next run goes on with what is left.
  IF NOT is_more AND (has_ticked OR NOT has_stepped) THEN
    UPDATE undolog_cluster SET clock_seen_at = t,
      clock_back_at = CASE WHEN has_stepped THEN t ELSE clock_back_at END;
  END IF;
  RETURN changed;
END $$;
