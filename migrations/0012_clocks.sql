-- 0012 clocks: ticks of proxies per organisation, since when a service has run without a gap, what
-- was due during an outage, and the repair of stored times after the database's clock stepped back.
-- Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0012', 'Clocks: ticks per organisation, outages, steps of the clock')
ON CONFLICT (version) DO NOTHING;

-- ------------------------------------------------------------------ ticks

ALTER TABLE undolog_service ADD COLUMN away_from timestamptz;
COMMENT ON COLUMN undolog_service.away_from IS
  'The last tick before the outage that ended at resumed_at; NULL: there was none yet';

-- One row per organisation: its proxies are out only when all of them are.
CREATE TABLE undolog_proxies (
  org_id uuid PRIMARY KEY REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  last_tick_at timestamptz NOT NULL,
  resumed_at timestamptz NOT NULL,
  away_from timestamptz,
  ids uuid[] NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE undolog_proxies IS 'Ticks of an organisation''s proxies; other organisations'' say nothing about them';
COMMENT ON COLUMN undolog_proxies.ids IS 'The proxies that ticked last, each by a number that it drew when it started';
SELECT undolog_secure('undolog_proxies'::regclass);
GRANT SELECT, INSERT, UPDATE ON undolog_proxies TO undolog_app;
GRANT SELECT ON undolog_proxies TO undolog_worker;

-- The times of a tick row after a tick at t. More than 15 s between two ticks, in either direction,
-- is an outage or a step of the clock: leases count anew from t. An outage that follows while people
-- still have their time after the one before counts as one with it.
CREATE FUNCTION undolog_ticked(last_tick_at timestamptz, resumed_at timestamptz,
  away_from timestamptz, t timestamptz, OUT resumed timestamptz, OUT away timestamptz)
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN g.is_gap THEN t ELSE least(resumed_at, t) END,
    CASE WHEN NOT g.is_gap OR (away_from IS NOT NULL AND last_tick_at < resumed_at + interval '15 minutes')
      THEN CASE WHEN away_from IS NOT NULL THEN least(away_from, t) END
      ELSE least(last_tick_at, t) END
  FROM (SELECT abs(extract(epoch FROM t - last_tick_at)) > 15 AS is_gap) g
$$;

-- One tick of the engines.
CREATE OR REPLACE FUNCTION undolog_tick(name text) RETURNS timestamptz LANGUAGE sql AS $$
  INSERT INTO undolog_service AS s (service, last_tick_at, resumed_at)
  VALUES (name, clock_timestamp(), clock_timestamp())
  ON CONFLICT (service) DO UPDATE SET (last_tick_at, resumed_at, away_from) = (
    SELECT c.t, k.resumed, k.away
    FROM (SELECT clock_timestamp() AS t OFFSET 0) c
    CROSS JOIN LATERAL undolog_ticked(s.last_tick_at, s.resumed_at, s.away_from, c.t) k)
  RETURNING resumed_at
$$;

-- One tick of a proxy of this organisation.
CREATE FUNCTION undolog_tick_proxy(org uuid, proxy uuid) RETURNS timestamptz LANGUAGE sql AS $$
  INSERT INTO undolog_proxies AS s (org_id, last_tick_at, resumed_at, ids)
  VALUES (org, clock_timestamp(), clock_timestamp(), array_remove(ARRAY[proxy], NULL))
  ON CONFLICT (org_id) DO UPDATE SET (last_tick_at, resumed_at, away_from, ids) = (
    SELECT c.t, k.resumed, k.away,
      -- The newest 256: a proxy that restarts often must not make the row grow.
      CASE WHEN proxy IS NULL OR proxy = ANY (s.ids) THEN s.ids
        ELSE (s.ids || proxy)[greatest(cardinality(s.ids) - 254, 1):] END
    FROM (SELECT clock_timestamp() AS t OFFSET 0) c
    CROSS JOIN LATERAL undolog_ticked(s.last_tick_at, s.resumed_at, s.away_from, c.t) k)
  RETURNING resumed_at
$$;

-- Since when everything that a session depends on has run without a gap; NULL while something is
-- away. A session that was begun through a proxy depends on its organisation's proxies too, unless
-- none was seen for an hour in which engines ran: then they are gone, not out.
CREATE FUNCTION undolog_running_since(via_proxy bool, t timestamptz)
RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN abs(extract(epoch FROM t - e.last_tick_at)) > 15 THEN NULL
    WHEN p.org_id IS NULL THEN e.resumed_at
    WHEN abs(extract(epoch FROM t - p.last_tick_at)) <= 15 THEN greatest(e.resumed_at, p.resumed_at)
    -- A tick that lies ahead is one of before the clock stepped back, which the engines have seen.
    WHEN t - greatest(e.resumed_at, CASE WHEN p.last_tick_at <= t THEN p.last_tick_at END)
      > interval '1 hour' THEN e.resumed_at
  END
  FROM undolog_service e
  LEFT JOIN undolog_proxies p ON via_proxy
    AND p.org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid
  WHERE e.service = 'engine'
$$;

-- The one predicate of every expiry: past the lease counted from the later of its renewal and our
-- own return, and only while our service is seen to run.
CREATE OR REPLACE FUNCTION undolog_lease_over(renewed_at timestamptz, lease_ms bigint, via_proxy bool, t timestamptz)
RETURNS bool LANGUAGE sql STABLE AS $$
  SELECT COALESCE(s.since IS NOT NULL
    AND t > greatest(renewed_at, s.since) + lease_ms * interval '1 millisecond', false)
  FROM (SELECT undolog_running_since(via_proxy, t) AS since) s
$$;

-- Whether a request waits longer for people, since its window ended while they could not decide:
-- until 15 minutes after our return, if the policy would approve it.
CREATE FUNCTION undolog_approval_is_held(timeout_at timestamptz, via_proxy bool, t timestamptz)
RETURNS bool LANGUAGE sql STABLE AS $$
  SELECT COALESCE(bool_or(timeout_at BETWEEN k.away_from AND k.resumed_at
    AND t < k.resumed_at + interval '15 minutes'), false)
  FROM (
    SELECT away_from, resumed_at FROM undolog_service WHERE service = 'engine'
    UNION ALL
    SELECT away_from, resumed_at FROM undolog_proxies
    WHERE via_proxy
      AND org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid) k
$$;

-- ------------------------------------------------------------------ steps of the clock

ALTER TABLE undolog_rollbacks ADD COLUMN due_from timestamptz;
COMMENT ON COLUMN undolog_rollbacks.due_from IS
  'When due_at was written: a clock that is behind it has stepped back';
ALTER TABLE undolog_notifications ADD COLUMN due_from timestamptz;
COMMENT ON COLUMN undolog_notifications.due_from IS
  'When due_at was written: a clock that is behind it has stepped back';

CREATE FUNCTION undolog_set_due_from() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.due_from := clock_timestamp();
  RETURN NEW;
END $$;
CREATE TRIGGER undolog_rollbacks_due_from_insert BEFORE INSERT ON undolog_rollbacks
  FOR EACH ROW EXECUTE FUNCTION undolog_set_due_from();
CREATE TRIGGER undolog_rollbacks_due_from BEFORE UPDATE OF due_at ON undolog_rollbacks
  FOR EACH ROW WHEN (OLD.due_at <> NEW.due_at) EXECUTE FUNCTION undolog_set_due_from();
CREATE TRIGGER undolog_notifications_due_from_insert BEFORE INSERT ON undolog_notifications
  FOR EACH ROW EXECUTE FUNCTION undolog_set_due_from();
CREATE TRIGGER undolog_notifications_due_from BEFORE UPDATE OF due_at ON undolog_notifications
  FOR EACH ROW WHEN (OLD.due_at <> NEW.due_at) EXECUTE FUNCTION undolog_set_due_from();

ALTER TABLE undolog_cluster
  ADD COLUMN clock_seen_at timestamptz,
  ADD COLUMN clock_checked_at timestamptz;
COMMENT ON COLUMN undolog_cluster.clock_seen_at IS
  'The clock as it was last seen: when it is behind this, it has stepped back';
COMMENT ON COLUMN undolog_cluster.clock_checked_at IS
  'When due times and claims were last looked through';

-- Repairs what the database's clock left behind when it stepped back: no stored time lies further
-- ahead than its own duration. What was renewed, lost or opened "later" than now counts from now;
-- what is due or held keeps the wait that was meant. Windows that people were promised stay as they
-- were. Answers how many rows it changed. Rows that somebody holds are left: their holder writes
-- them, or the next run does. Over all organisations, without showing anything of them.
CREATE FUNCTION undolog_rewind(claim_ms bigint, rows_max int) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  t constant timestamptz := clock_timestamp();
  edge constant timestamptz := t + interval '1 second';
  claim constant interval := claim_ms * interval '1 millisecond';
  seen undolog_cluster%ROWTYPE;
  is_back bool;
  is_more bool := false;
  changed bigint := 0;
  n bigint;
BEGIN
  SELECT * INTO seen FROM undolog_cluster FOR UPDATE;
  is_back := seen.clock_seen_at > edge;
  IF is_back THEN
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
  IF NOT is_more THEN
    UPDATE undolog_cluster SET clock_seen_at = t;
  END IF;
  RETURN changed;
END $$;
REVOKE ALL ON FUNCTION undolog_rewind(bigint, int) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION undolog_rewind(bigint, int) TO undolog_worker;

-- ------------------------------------------------------------------ mass expiry

ALTER TABLE undolog_brakes ADD COLUMN classes bigint[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN undolog_brakes.classes IS
  'The classes of leases that are held: the longest lease of each, in milliseconds';

-- The class of a lease: leases of about one length are judged together, over a time of that length.
-- Its number is the longest lease of the class: five minutes, and twice the one before.
CREATE FUNCTION undolog_lease_class(lease_ms bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT 300000 * (1::bigint << ceil(log(2, greatest(lease_ms, 300000)::numeric / 300000))::int)
$$;
