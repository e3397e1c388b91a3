-- 0003 additions: what the durable engine and its workers need beside the documented schema.
-- Only additions: columns with defaults, new tables, functions, the payload-free view of due work.
-- Runs as undolog_owner. New enum values of 0002 may be used from here on.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0003', 'Additions: keys, grants, attempts, events, rollbacks, dead letters, queue')
ON CONFLICT (version) DO NOTHING;

-- ------------------------------------------------------------------ organisations: policies

ALTER TABLE undolog_orgs
  ADD COLUMN on_tool_failure text NOT NULL DEFAULT 'rollback'
    CONSTRAINT undolog_orgs_on_tool_failure CHECK (on_tool_failure IN ('rollback', 'continue')),
  ADD COLUMN on_rejection text NOT NULL DEFAULT 'halt'
    CONSTRAINT undolog_orgs_on_rejection CHECK (on_rejection IN ('halt', 'rollback')),
  ADD COLUMN on_dead_letter text NOT NULL DEFAULT 'halt'
    CONSTRAINT undolog_orgs_on_dead_letter CHECK (on_dead_letter IN ('halt', 'continue')),
  ADD COLUMN on_step_conflict text NOT NULL DEFAULT 'refuse'
    CONSTRAINT undolog_orgs_on_step_conflict CHECK (on_step_conflict IN ('refuse', 'allow')),
  ADD COLUMN on_unregistered_tool text NOT NULL DEFAULT 'refuse'
    CONSTRAINT undolog_orgs_on_unregistered_tool
    CHECK (on_unregistered_tool IN ('refuse', 'irreversible')),
  ADD COLUMN on_unknown text
    CONSTRAINT undolog_orgs_on_unknown CHECK (on_unknown IN ('rollback', 'hold')),
  ADD COLUMN on_idle text NOT NULL DEFAULT 'complete'
    CONSTRAINT undolog_orgs_on_idle CHECK (on_idle IN ('complete', 'rollback', 'leave')),
  ADD COLUMN idle_session_seconds int NOT NULL DEFAULT 86400
    CONSTRAINT undolog_orgs_idle CHECK (idle_session_seconds BETWEEN 60 AND 31622400),
  ADD COLUMN resume_window_seconds int NOT NULL DEFAULT 86400
    CONSTRAINT undolog_orgs_resume CHECK (resume_window_seconds BETWEEN 0 AND 31622400),
  ADD COLUMN undo_window_seconds int NOT NULL DEFAULT 2592000
    CONSTRAINT undolog_orgs_undo_window CHECK (undo_window_seconds BETWEEN 60 AND 316224000),
  ADD COLUMN settle_ms bigint
    CONSTRAINT undolog_orgs_settle CHECK (settle_ms BETWEEN 0 AND 86400000),
  ADD COLUMN never_auto_approve_tags text[] NOT NULL DEFAULT '{}',
  ADD COLUMN registry_epoch bigint NOT NULL DEFAULT 0;

COMMENT ON COLUMN undolog_orgs.on_unknown IS 'NULL: rollback with a session lease, else hold';
COMMENT ON COLUMN undolog_orgs.settle_ms IS 'Wait for an unknown effect before its undo; NULL: its grant lease';
COMMENT ON COLUMN undolog_orgs.registry_epoch IS 'Grows with every change of tools or compensations';

-- ------------------------------------------------------------------ registry

ALTER TABLE undolog_tool_registry
  ADD COLUMN idempotent bool NOT NULL DEFAULT false,
  ADD COLUMN grant_lease_ms bigint
    CONSTRAINT undolog_tool_grant_lease CHECK (grant_lease_ms BETWEEN 1000 AND 86400000),
  ADD COLUMN max_execution_ms bigint
    CONSTRAINT undolog_tool_max_execution CHECK (max_execution_ms BETWEEN 1000 AND 604800000),
  ADD COLUMN allowed_compensations text[] NOT NULL DEFAULT '{}',
  ADD COLUMN registered_by text NOT NULL DEFAULT 'system';

ALTER TABLE undolog_compensation_registry
  ADD COLUMN open bool NOT NULL DEFAULT false,
  ADD COLUMN registered_by text NOT NULL DEFAULT 'system',
  ADD CONSTRAINT undolog_compensation_retries CHECK (max_retries BETWEEN 0 AND 100),
  ADD CONSTRAINT undolog_compensation_backoff CHECK (retry_backoff_ms BETWEEN 0 AND 3600000);
COMMENT ON COLUMN undolog_compensation_registry.open IS 'Agents may bind their own tools to it';

-- ------------------------------------------------------------------ API keys

CREATE TABLE undolog_api_keys (
  key_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  key_hash bytea NOT NULL CONSTRAINT undolog_api_keys_hash_unique UNIQUE
    CONSTRAINT undolog_api_keys_hash_length CHECK (octet_length(key_hash) = 32),
  key_hint text NOT NULL,
  role text NOT NULL CONSTRAINT undolog_api_keys_role
    CHECK (role IN ('agent', 'executor', 'approver', 'operator', 'admin')),
  principal text NOT NULL CONSTRAINT undolog_api_keys_principal CHECK (principal <> ''),
  created_at timestamptz NOT NULL DEFAULT now(),
  created_by text NOT NULL DEFAULT 'system',
  expires_at timestamptz,
  revoked_at timestamptz
);
COMMENT ON TABLE undolog_api_keys IS 'API keys: only the SHA-256 of a key is kept';
COMMENT ON COLUMN undolog_api_keys.principal IS 'Who acts; a rotated key keeps its principal';
CREATE INDEX idx_undolog_api_keys_org ON undolog_api_keys (org_id);

-- ------------------------------------------------------------------ sessions

ALTER TABLE undolog_sessions
  ADD COLUMN principal text NOT NULL DEFAULT 'system',
  ADD COLUMN implicit bool NOT NULL DEFAULT true,
  ADD COLUMN via_proxy bool NOT NULL DEFAULT false,
  ADD COLUMN session_month date NOT NULL DEFAULT (date_trunc('month', now() AT TIME ZONE 'UTC'))::date,
  ADD COLUMN signature_version smallint NOT NULL DEFAULT 1,
  ADD COLUMN numbering text CONSTRAINT undolog_sessions_numbering
    CHECK (numbering IN ('index', 'key')),
  ADD COLUMN event_seq bigint NOT NULL DEFAULT 0,
  ADD COLUMN last_position int NOT NULL DEFAULT 0,
  ADD COLUMN max_step int NOT NULL DEFAULT 0,
  ADD COLUMN effects_total int NOT NULL DEFAULT 0,
  ADD COLUMN last_executed_at timestamptz,
  ADD COLUMN last_rpc_at timestamptz NOT NULL DEFAULT now(),
  ADD COLUMN lease_ms bigint,
  ADD COLUMN lease_renewed_at timestamptz,
  ADD COLUMN lease_hold_until timestamptz,
  ADD COLUMN grant_lost_at timestamptz,
  ADD COLUMN lease_failed_at timestamptz,
  ADD COLUMN on_tool_failure text CONSTRAINT undolog_sessions_on_tool_failure
    CHECK (on_tool_failure IN ('rollback', 'continue')),
  ADD COLUMN on_rejection text CONSTRAINT undolog_sessions_on_rejection
    CHECK (on_rejection IN ('halt', 'rollback')),
  ADD COLUMN on_unknown text CONSTRAINT undolog_sessions_on_unknown
    CHECK (on_unknown IN ('rollback', 'hold')),
  ADD COLUMN residue_count int NOT NULL DEFAULT 0,
  ADD COLUMN unverified_count int NOT NULL DEFAULT 0,
  ADD COLUMN settled_at timestamptz,
  ADD COLUMN settled_by text,
  ADD COLUMN settled_note text,
  ADD COLUMN sealed_at timestamptz,
  ADD COLUMN failure_reason_raw bytea,
  ADD COLUMN metadata_raw bytea;
ALTER TABLE undolog_sessions SET (fillfactor = 70);
COMMENT ON COLUMN undolog_sessions.session_month IS 'First day of the UTC month of started_at; never changes; partition key of its history';
COMMENT ON COLUMN undolog_sessions.last_position IS 'The one counter of grants: position, stack_position, asked_position';
COMMENT ON COLUMN undolog_sessions.lease_ms IS 'NULL: an implicit session, which has no lease of its own';
COMMENT ON COLUMN undolog_sessions.lease_hold_until IS 'The lease cannot run out before this time';
COMMENT ON COLUMN undolog_sessions.grant_lost_at IS 'An implicit session fails only after one of its grants was lost';

-- ------------------------------------------------------------------ effects

ALTER TABLE undolog_effect_log
  ADD COLUMN session_month date NOT NULL DEFAULT (date_trunc('month', now() AT TIME ZONE 'UTC'))::date,
  ADD COLUMN step_key text,
  ADD COLUMN attempt int NOT NULL DEFAULT 1,
  ADD COLUMN position int,
  ADD COLUMN asked_position int,
  ADD COLUMN grant_token text,
  ADD COLUMN granted_at timestamptz,
  ADD COLUMN lease_renewed_at timestamptz,
  ADD COLUMN lease_ms bigint,
  ADD COLUMN execution_ends_at timestamptz,
  ADD COLUMN lost_at timestamptz,
  ADD COLUMN outcome text CONSTRAINT undolog_effect_outcome
    CHECK (outcome IN ('not_applied', 'maybe_applied')),
  ADD COLUMN rejected_by text CONSTRAINT undolog_effect_rejected_by
    CHECK (rejected_by IN ('decision', 'timeout', 'lapse', 'rollback', 'revoke')),
  ADD COLUMN operator_said text CONSTRAINT undolog_effect_operator_said
    CHECK (operator_said IN ('committed', 'not_applied')),
  ADD COLUMN failed_at timestamptz,
  ADD COLUMN error text,
  ADD COLUMN error_raw bytea,
  ADD COLUMN duration_ms bigint,
  ADD COLUMN idempotent bool NOT NULL DEFAULT false,
  ADD COLUMN accepts_approved_args bool NOT NULL DEFAULT false,
  ADD COLUMN principal text NOT NULL DEFAULT 'system',
  ADD COLUMN args_snapshot_raw bytea,
  ADD COLUMN result_snapshot_raw bytea,
  ADD COLUMN compensation_args_raw bytea,
  ADD CONSTRAINT undolog_effect_failed_has_outcome
    CHECK (state <> 'failed' OR outcome IS NOT NULL),
  ADD CONSTRAINT undolog_effect_committed_has_time
    CHECK (state <> 'committed' OR committed_at IS NOT NULL),
  ADD CONSTRAINT undolog_effect_executing_has_lease
    CHECK (state <> 'executing'
      OR (lease_renewed_at IS NOT NULL AND lease_ms IS NOT NULL AND position IS NOT NULL));
COMMENT ON COLUMN undolog_effect_log.position IS 'Place in the order of grants; a compensable effect''s stack_position';
COMMENT ON COLUMN undolog_effect_log.asked_position IS 'Place in the order when an irreversible call was asked';
COMMENT ON COLUMN undolog_effect_log.lease_ms IS 'NULL: no live grant';

-- Live grants of approved calls are few; the documented state index covers the executing ones.
CREATE INDEX idx_undolog_effect_log_approved ON undolog_effect_log (session_id)
  WHERE state = 'approved';

CREATE TABLE undolog_effect_attempts (
  effect_id uuid NOT NULL,
  attempt int NOT NULL,
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
  position int,
  granted_at timestamptz,
  ended_at timestamptz NOT NULL,
  state text NOT NULL,
  outcome text,
  error text,
  error_raw bytea,
  duration_ms bigint,
  result_snapshot jsonb,
  result_snapshot_raw bytea,
  committed_at timestamptz,
  approval_request_id uuid,
  PRIMARY KEY (effect_id, attempt)
);
COMMENT ON TABLE undolog_effect_attempts IS 'Earlier attempts of an effect; the newest stands in undolog_effect_log';
CREATE INDEX idx_undolog_effect_attempts_session ON undolog_effect_attempts (session_id);

-- ------------------------------------------------------------------ undo stack

ALTER TABLE undolog_undo_stack
  ADD COLUMN attempt int NOT NULL DEFAULT 1,
  ADD COLUMN compensation_args_raw bytea,
  ADD COLUMN result_templates bytea NOT NULL DEFAULT '\x7b7d',
  ADD COLUMN max_retries int NOT NULL DEFAULT 3
    CONSTRAINT undolog_undo_max_retries CHECK (max_retries BETWEEN 0 AND 100),
  ADD COLUMN retry_backoff_ms int NOT NULL DEFAULT 1000
    CONSTRAINT undolog_undo_backoff CHECK (retry_backoff_ms BETWEEN 0 AND 3600000),
  ADD COLUMN round int NOT NULL DEFAULT 1,
  ADD COLUMN next_try_at timestamptz,
  ADD COLUMN interruptions int NOT NULL DEFAULT 0,
  ADD COLUMN deferred_since timestamptz,
  ADD COLUMN skip_reason text,
  ADD COLUMN cause text,
  ADD COLUMN superseded_by uuid,
  ADD COLUMN last_error_raw bytea,
  ADD CONSTRAINT undolog_undo_skipped_has_reason
    CHECK (state <> 'skipped' OR skip_reason IS NOT NULL),
  ADD CONSTRAINT undolog_undo_compensated_has_time
    CHECK (state <> 'compensated' OR compensated_at IS NOT NULL);
COMMENT ON COLUMN undolog_undo_stack.result_templates IS 'JSON text: pointers into compensation_args that wait for the result, with their segments';
COMMENT ON COLUMN undolog_undo_stack.interruptions IS 'Attempts in a row without an outcome while the entry ran alone';
CREATE INDEX idx_undolog_undo_stack_running ON undolog_undo_stack (session_id)
  WHERE state = 'running';

CREATE TABLE undolog_undo_attempts (
  undo_attempt_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
  undo_id uuid NOT NULL REFERENCES undolog_undo_stack (undo_id) ON DELETE CASCADE,
  rollback_id uuid NOT NULL,
  round int NOT NULL,
  number int NOT NULL,
  fence bigint NOT NULL,
  worker text NOT NULL,
  fn_hash bytea NOT NULL,
  method text NOT NULL,
  url text NOT NULL,
  result_known bool NOT NULL,
  started_at timestamptz NOT NULL,
  finished_at timestamptz,
  outcome text CONSTRAINT undolog_undo_attempt_outcome CHECK (outcome IN
    ('succeeded', 'retryable', 'permanent', 'deferred', 'interrupted', 'handed_back')),
  status int,
  error text,
  error_raw bytea,
  response bytea,
  response_truncated bool NOT NULL DEFAULT false,
  retry_after_ms bigint,
  CONSTRAINT undolog_undo_attempt_finished CHECK ((finished_at IS NULL) = (outcome IS NULL)),
  CONSTRAINT undolog_undo_attempt_number UNIQUE (undo_id, round, number)
);
COMMENT ON TABLE undolog_undo_attempts IS 'One row per call of a compensation, written before the call';
COMMENT ON COLUMN undolog_undo_attempts.url IS 'Secrets stand as placeholders';

-- ------------------------------------------------------------------ rollbacks and dead letters

CREATE TABLE undolog_rollbacks (
  rollback_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
  kind text NOT NULL CONSTRAINT undolog_rollbacks_kind CHECK (kind IN ('whole', 'partial')),
  state text NOT NULL DEFAULT 'draining' CONSTRAINT undolog_rollbacks_state
    CHECK (state IN ('draining', 'walking', 'halted', 'compensated', 'superseded')),
  from_position int NOT NULL DEFAULT 0,
  cause text NOT NULL,
  requested_by text NOT NULL,
  reason text NOT NULL DEFAULT '',
  allow_residue bool NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  drained_at timestamptz,
  lease_owner text,
  lease_expires_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  finished_at timestamptz,
  residue_count int NOT NULL DEFAULT 0,
  unverified_count int NOT NULL DEFAULT 0
);
COMMENT ON TABLE undolog_rollbacks IS 'One request to walk a session''s undo stack; its lease and fence guard the walk';
CREATE UNIQUE INDEX undolog_rollbacks_one_live ON undolog_rollbacks (session_id)
  WHERE state IN ('draining', 'walking', 'halted');
CREATE INDEX idx_undolog_rollbacks_session ON undolog_rollbacks (session_id, created_at);
CREATE INDEX idx_undolog_rollbacks_due ON undolog_rollbacks (due_at)
  WHERE state IN ('draining', 'walking');

CREATE TABLE undolog_dead_letters (
  dead_letter_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
  effect_id uuid NOT NULL,
  undo_id uuid,
  rollback_id uuid,
  reason text NOT NULL,
  detail text NOT NULL DEFAULT '',
  detail_raw bytea,
  created_at timestamptz NOT NULL,
  closed_at timestamptz,
  closed_by text,
  resolution text,
  note text,
  CONSTRAINT undolog_dead_letters_closed CHECK ((closed_at IS NULL) = (closed_by IS NULL))
);
COMMENT ON TABLE undolog_dead_letters IS 'What only a human can settle: at most one open per effect and undo entry';
CREATE UNIQUE INDEX undolog_dead_letters_one_open
  ON undolog_dead_letters (effect_id, undo_id) NULLS NOT DISTINCT WHERE closed_at IS NULL;
CREATE INDEX idx_undolog_dead_letters_session ON undolog_dead_letters (session_id);
CREATE INDEX idx_undolog_dead_letters_open ON undolog_dead_letters (org_id, created_at)
  WHERE closed_at IS NULL;

-- ------------------------------------------------------------------ approvals

ALTER TABLE undolog_approval_requests
  ADD COLUMN attempt int NOT NULL DEFAULT 1,
  ADD COLUMN args_digest bytea,
  ADD COLUMN granted_at timestamptz,
  ADD COLUMN claimed_actor text,
  ADD COLUMN proposed_args_raw bytea,
  ADD COLUMN approved_args_raw bytea,
  ADD COLUMN agent_context_raw bytea;
COMMENT ON COLUMN undolog_approval_requests.args_digest IS 'BLAKE3 of the canonical approved args; a grant is bound to it';
COMMENT ON COLUMN undolog_approval_requests.granted_at IS 'One approval, one grant';

ALTER TABLE undolog_approval_events
  ADD COLUMN claimed_actor text;

-- ------------------------------------------------------------------ brake, schedules, service

CREATE TABLE undolog_brakes (
  org_id uuid PRIMARY KEY REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  state text NOT NULL CONSTRAINT undolog_brakes_state
    CHECK (state IN ('raised', 'limited', 'stopped', 'forced', 'released')),
  expired int NOT NULL,
  live int NOT NULL,
  raised_at timestamptz NOT NULL,
  hold_until timestamptz NOT NULL,
  last_failed_at timestamptz,
  set_by text NOT NULL DEFAULT 'system:lease'
);
COMMENT ON TABLE undolog_brakes IS 'MASS_EXPIRY: too many sessions of an organisation ran out at once';

CREATE TABLE undolog_schedules (
  name text PRIMARY KEY,
  last_slot bigint NOT NULL DEFAULT -1,
  fence bigint NOT NULL DEFAULT 0,
  claimed_at timestamptz,
  claimed_by text
);
COMMENT ON TABLE undolog_schedules IS 'One row per schedule; a slot is claimed by one conditional UPDATE';
INSERT INTO undolog_schedules (name)
VALUES ('reaper'), ('grants'), ('sessions'), ('idle'), ('approvals'), ('cleanup'), ('partitions');

CREATE TABLE undolog_service (
  service text PRIMARY KEY CONSTRAINT undolog_service_name CHECK (service IN ('engine', 'proxy')),
  last_tick_at timestamptz NOT NULL,
  resumed_at timestamptz NOT NULL
);
COMMENT ON TABLE undolog_service IS 'Ticks of engines and proxies: an outage of ours is not a crash of theirs';

CREATE TABLE undolog_cluster (
  singleton bool PRIMARY KEY DEFAULT true CONSTRAINT undolog_cluster_one_row CHECK (singleton),
  epoch int NOT NULL DEFAULT 1,
  updated_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE undolog_cluster IS 'The epoch of event cursors; raised after a restore';
INSERT INTO undolog_cluster DEFAULT VALUES;

-- ------------------------------------------------------------------ partitioned additions

CREATE TABLE undolog_effect_events (
  session_month date NOT NULL,
  org_id uuid NOT NULL,
  session_id uuid NOT NULL,
  seq bigint NOT NULL,
  event_id uuid NOT NULL DEFAULT uuidv7_or_random(),
  kind text NOT NULL,
  subject text NOT NULL CONSTRAINT undolog_effect_events_subject CHECK (subject IN
    ('session', 'effect', 'undo', 'approval', 'rollback', 'dead_letter')),
  subject_id uuid NOT NULL,
  from_state text,
  to_state text,
  attempt int,
  actor text NOT NULL,
  occurred_at timestamptz NOT NULL,
  detail jsonb NOT NULL DEFAULT '{}',
  epoch int NOT NULL DEFAULT 1,
  tx xid8 NOT NULL DEFAULT pg_current_xact_id(),
  PRIMARY KEY (session_month, session_id, seq)
) PARTITION BY RANGE (session_month);
COMMENT ON TABLE undolog_effect_events IS 'The append-only log: one row per transition, gapless per session';
CREATE INDEX idx_undolog_effect_events_org ON undolog_effect_events (org_id, epoch, tx, event_id);

CREATE TABLE undolog_signatures (
  session_month date NOT NULL,
  org_id uuid NOT NULL,
  session_id uuid NOT NULL,
  call_signature char(64) NOT NULL,
  effect_id uuid NOT NULL,
  step_index int NOT NULL,
  step_key text,
  CONSTRAINT undolog_signatures_unique PRIMARY KEY (session_month, session_id, call_signature)
) PARTITION BY RANGE (session_month);
COMMENT ON TABLE undolog_signatures IS 'Uniqueness of a call over all months: partitioned by what never changes';
CREATE UNIQUE INDEX undolog_signatures_key ON undolog_signatures (session_month, session_id, step_key)
  WHERE step_key IS NOT NULL;

-- Policies of a tenant table: its organisation's rows, and everything for the owner. Children get
-- their own, because a directly named partition ignores its parent's.
CREATE FUNCTION undolog_secure(target regclass) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, public AS $$
DECLARE
  name text := (SELECT relname FROM pg_class WHERE oid = target);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', target);
  EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', target);
  EXECUTE format(
    'CREATE POLICY %I ON %s USING (org_id = NULLIF(current_setting(''undolog.current_org_id'', true), '''')::uuid)'
    ' WITH CHECK (org_id = NULLIF(current_setting(''undolog.current_org_id'', true), '''')::uuid)',
    name || '_isolation', target);
  EXECUTE format(
    'CREATE POLICY %I ON %s FOR ALL TO undolog_owner USING (true) WITH CHECK (true)',
    name || '_owner', target);
END $$;
REVOKE ALL ON FUNCTION undolog_secure(regclass) FROM PUBLIC;

DO $$
DECLARE
  parent text;
  month date;
  child text;
  first date := date_trunc('month', now() AT TIME ZONE 'UTC')::date;
BEGIN
  FOREACH parent IN ARRAY ARRAY['undolog_effect_events', 'undolog_signatures'] LOOP
    FOR n IN -6..14 LOOP
      month := (first + make_interval(months => n))::date;
      child := parent || to_char(month, '_YYYY_MM');
      EXECUTE format('CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
        child, parent, month, (month + interval '1 month')::date);
      PERFORM undolog_secure(child::regclass);
    END LOOP;
  END LOOP;
  FOREACH parent IN ARRAY ARRAY['undolog_effect_events', 'undolog_signatures',
    'undolog_api_keys', 'undolog_effect_attempts', 'undolog_undo_attempts', 'undolog_rollbacks',
    'undolog_dead_letters', 'undolog_brakes'] LOOP
    PERFORM undolog_secure(parent::regclass);
  END LOOP;
END $$;

-- ------------------------------------------------------------------ legal moves

-- The database's copy of the transition tables of the core; a test compares the two.
CREATE FUNCTION undolog_effect_move_ok(a undolog_effect_state, b undolog_effect_state)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a::text
    WHEN 'pending' THEN b::text IN ('executing', 'approved', 'rejected')
    WHEN 'approved' THEN b::text IN ('committed', 'failed', 'unknown', 'rejected')
    WHEN 'executing' THEN b::text IN ('committed', 'failed', 'unknown')
    WHEN 'unknown' THEN b::text IN
      ('executing', 'approved', 'pending', 'committed', 'failed', 'compensating')
    WHEN 'failed' THEN b::text IN ('executing', 'pending', 'committed', 'compensating')
    WHEN 'committed' THEN b::text = 'compensating'
    WHEN 'compensating' THEN b::text IN ('compensated', 'compensation_failed')
    WHEN 'compensation_failed' THEN b::text IN ('compensating', 'compensated')
    ELSE false END
$$;
CREATE FUNCTION undolog_session_move_ok(a undolog_session_state, b undolog_session_state)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a::text
    WHEN 'active' THEN b::text IN
      ('awaiting_approval', 'completed', 'failed', 'halted', 'compensating')
    WHEN 'awaiting_approval' THEN b::text IN ('active', 'failed', 'halted', 'compensating')
    WHEN 'completed' THEN b::text = 'failed'
    WHEN 'failed' THEN b::text = 'compensating'
    WHEN 'halted' THEN b::text IN ('failed', 'compensating')
    WHEN 'compensating' THEN b::text IN
      ('compensated', 'halted', 'active', 'awaiting_approval')
    WHEN 'compensated' THEN b::text IN ('compensating', 'halted')
    ELSE false END
$$;
CREATE FUNCTION undolog_undo_move_ok(a text, b text)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a
    WHEN 'pending' THEN b IN ('running', 'skipped', 'failed', 'compensated')
    WHEN 'running' THEN b IN ('compensated', 'failed')
    WHEN 'failed' THEN b IN ('pending', 'skipped', 'compensated')
    WHEN 'skipped' THEN b = 'compensated'
    ELSE false END
$$;
CREATE FUNCTION undolog_approval_move_ok(a undolog_approval_state, b undolog_approval_state)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a::text
    WHEN 'pending' THEN b::text IN ('approved', 'rejected', 'timed_out', 'auto_approved')
    ELSE false END
$$;
CREATE FUNCTION undolog_refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'illegal move of %: % to %', TG_TABLE_NAME, OLD.state, NEW.state
    USING ERRCODE = 'check_violation', CONSTRAINT = 'undolog_legal_move';
END $$;
CREATE TRIGGER undolog_effect_log_move BEFORE UPDATE OF state ON undolog_effect_log
  FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT undolog_effect_move_ok(OLD.state, NEW.state))
  EXECUTE FUNCTION undolog_refuse_move();
CREATE TRIGGER undolog_sessions_move BEFORE UPDATE OF state ON undolog_sessions
  FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT undolog_session_move_ok(OLD.state, NEW.state))
  EXECUTE FUNCTION undolog_refuse_move();
CREATE TRIGGER undolog_undo_stack_move BEFORE UPDATE OF state ON undolog_undo_stack
  FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT undolog_undo_move_ok(OLD.state, NEW.state))
  EXECUTE FUNCTION undolog_refuse_move();
CREATE TRIGGER undolog_approval_requests_move BEFORE UPDATE OF state ON undolog_approval_requests
  FOR EACH ROW WHEN (OLD.state <> NEW.state AND NOT undolog_approval_move_ok(OLD.state, NEW.state))
  EXECUTE FUNCTION undolog_refuse_move();

-- What identifies an effect never changes.
CREATE FUNCTION undolog_refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the identity of % never changes', TG_TABLE_NAME
    USING ERRCODE = 'check_violation', CONSTRAINT = 'undolog_identity';
END $$;
CREATE TRIGGER undolog_effect_log_identity BEFORE UPDATE ON undolog_effect_log
  FOR EACH ROW WHEN (OLD.effect_id <> NEW.effect_id OR OLD.executed_at <> NEW.executed_at
    OR OLD.session_id <> NEW.session_id OR OLD.org_id <> NEW.org_id
    OR OLD.call_signature <> NEW.call_signature OR OLD.step_index <> NEW.step_index)
  EXECUTE FUNCTION undolog_refuse_rewrite();
CREATE TRIGGER undolog_sessions_identity BEFORE UPDATE ON undolog_sessions
  FOR EACH ROW WHEN (OLD.session_id <> NEW.session_id OR OLD.org_id <> NEW.org_id
    OR OLD.started_at <> NEW.started_at OR OLD.session_month <> NEW.session_month
    OR OLD.principal <> NEW.principal)
  EXECUTE FUNCTION undolog_refuse_rewrite();

-- ------------------------------------------------------------------ time

-- The one predicate of every expiry: past the lease counted from the later of its renewal and our
-- own return, and only while our service is seen to run.
CREATE FUNCTION undolog_lease_over(renewed_at timestamptz, lease_ms bigint, via_proxy bool, t timestamptz)
RETURNS bool LANGUAGE sql STABLE AS $$
  SELECT COALESCE(bool_and(
    t > greatest(renewed_at, s.resumed_at) + lease_ms * interval '1 millisecond'
    AND s.last_tick_at >= t - interval '15 seconds'), false)
    AND count(*) FILTER (WHERE s.service = 'engine') = 1
  FROM undolog_service s
  WHERE s.service = 'engine' OR via_proxy
$$;

-- One tick of a service; a tick more than 15 s late says that the service was away.
CREATE FUNCTION undolog_tick(name text) RETURNS timestamptz LANGUAGE sql AS $$
  INSERT INTO undolog_service AS s (service, last_tick_at, resumed_at)
  VALUES (name, clock_timestamp(), clock_timestamp())
  ON CONFLICT (service) DO UPDATE SET
    resumed_at = CASE WHEN clock_timestamp() - s.last_tick_at > interval '15 seconds'
      THEN clock_timestamp() ELSE s.resumed_at END,
    last_tick_at = greatest(s.last_tick_at, clock_timestamp())
  RETURNING resumed_at
$$;

-- ------------------------------------------------------------------ queue

-- Upserts a ticket: a wake-up, never the truth. A ticket that is already pending and due no later
-- stays as it is. The caller computes the id, so that at most two rows exist per subject.
CREATE FUNCTION undolog_enqueue(ticket_id text, queue text, job jsonb, run_at timestamptz)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO apalis.jobs AS j (job, id, job_type, status, attempts, max_attempts, run_at)
  VALUES (undolog_enqueue.job, ticket_id, queue, 'Pending', 0, 1, undolog_enqueue.run_at)
  ON CONFLICT (id) DO UPDATE SET job = EXCLUDED.job, status = 'Pending',
    run_at = EXCLUDED.run_at, attempts = 0,
    lock_by = NULL, lock_at = NULL, done_at = NULL, last_error = NULL
  WHERE NOT (j.status = 'Pending' AND j.run_at <= EXCLUDED.run_at);
  IF undolog_enqueue.run_at <= clock_timestamp() THEN
    PERFORM pg_notify('apalis::job', queue);
  END IF;
END $$;
REVOKE ALL ON FUNCTION undolog_enqueue(text, text, jsonb, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION undolog_enqueue(text, text, jsonb, timestamptz)
  TO undolog_app, undolog_worker;

-- ------------------------------------------------------------------ grants of the runtime roles

GRANT SELECT, INSERT, UPDATE ON undolog_effect_attempts, undolog_undo_attempts, undolog_rollbacks,
  undolog_dead_letters, undolog_brakes TO undolog_app, undolog_worker;
GRANT SELECT, INSERT ON undolog_effect_events, undolog_signatures TO undolog_app, undolog_worker;
GRANT SELECT, INSERT, UPDATE ON undolog_api_keys TO undolog_app;
-- Also what lets a change of the registry lock its organisation's row.
GRANT UPDATE (registry_epoch) ON undolog_orgs TO undolog_app;
GRANT SELECT ON undolog_service, undolog_cluster, undolog_schedules TO undolog_app, undolog_worker;
GRANT INSERT, UPDATE ON undolog_service TO undolog_app;
GRANT UPDATE ON undolog_schedules TO undolog_worker;
-- A late commit found by the walk can need a new entry; a lost session's approvals are voided.
GRANT INSERT ON undolog_undo_stack, undolog_approval_events TO undolog_worker;

-- ------------------------------------------------------------------ undolog_auth

-- Payload-free sight of due work over all organisations, for the workers only.
CREATE VIEW undolog_due AS
  SELECT org_id, 'rollback'::text AS kind, rollback_id AS subject_id, due_at,
    lease_expires_at AS lease, fence
  FROM undolog_rollbacks WHERE state IN ('draining', 'walking')
  UNION ALL
  SELECT org_id, 'grant', effect_id, lease_renewed_at + lease_ms * interval '1 millisecond',
    NULL, attempt
  FROM undolog_effect_log
  WHERE state = 'executing'
  UNION ALL
  SELECT org_id, 'grant', effect_id, lease_renewed_at + lease_ms * interval '1 millisecond',
    NULL, attempt
  FROM undolog_effect_log
  WHERE state = 'approved' AND lease_ms IS NOT NULL
  UNION ALL
  SELECT org_id, 'session', session_id,
    greatest(lease_renewed_at + lease_ms * interval '1 millisecond', lease_hold_until), NULL, 0
  FROM undolog_sessions WHERE state = 'active' AND lease_ms IS NOT NULL
  UNION ALL
  SELECT org_id, 'session', session_id, last_rpc_at + interval '15 minutes', NULL, 0
  FROM undolog_sessions WHERE state = 'active' AND implicit AND grant_lost_at IS NOT NULL
  UNION ALL
  SELECT org_id, 'idle', session_id, last_rpc_at, NULL, 0
  FROM undolog_sessions WHERE state = 'active' AND implicit AND grant_lost_at IS NULL
  UNION ALL
  SELECT org_id, 'approval', approval_request_id, timeout_at, NULL, 0
  FROM undolog_approval_requests WHERE state = 'pending';
COMMENT ON VIEW undolog_due IS 'What is due, without any payload: org, kind, subject, when, lease, fence';

CREATE FUNCTION undolog_authenticate(hash bytea)
RETURNS TABLE (key_id uuid, org_id uuid, org_slug text, principal text, role text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT k.key_id, k.org_id, o.slug, k.principal, k.role
  FROM public.undolog_api_keys k JOIN public.undolog_orgs o ON o.org_id = k.org_id
  WHERE k.key_hash = hash AND k.revoked_at IS NULL
    AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())
$$;
CREATE FUNCTION undolog_org_by_slug(wanted text) RETURNS uuid
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  SELECT o.org_id FROM public.undolog_orgs o WHERE o.slug = wanted
$$;
REVOKE ALL ON FUNCTION undolog_authenticate(bytea), undolog_org_by_slug(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION undolog_authenticate(bytea), undolog_org_by_slug(text) TO undolog_app;
GRANT SELECT ON undolog_due TO undolog_worker;

GRANT SELECT (org_id, rollback_id, state, due_at, lease_expires_at, fence) ON undolog_rollbacks TO undolog_auth;
GRANT SELECT (org_id, effect_id, state, lease_renewed_at, lease_ms, attempt) ON undolog_effect_log TO undolog_auth;
GRANT SELECT (org_id, session_id, state, lease_renewed_at, lease_ms, lease_hold_until, implicit,
  grant_lost_at, last_rpc_at) ON undolog_sessions TO undolog_auth;
GRANT SELECT (org_id, approval_request_id, state, timeout_at) ON undolog_approval_requests TO undolog_auth;
GRANT SELECT (key_id, org_id, key_hash, principal, role, expires_at, revoked_at) ON undolog_api_keys TO undolog_auth;
GRANT SELECT (org_id, slug) ON undolog_orgs TO undolog_auth;

CREATE POLICY undolog_rollbacks_auth ON undolog_rollbacks FOR SELECT TO undolog_auth USING (true);
CREATE POLICY undolog_effect_log_auth ON undolog_effect_log FOR SELECT TO undolog_auth USING (true);
CREATE POLICY undolog_sessions_auth ON undolog_sessions FOR SELECT TO undolog_auth USING (true);
CREATE POLICY undolog_approval_requests_auth ON undolog_approval_requests FOR SELECT TO undolog_auth USING (true);
CREATE POLICY undolog_api_keys_auth ON undolog_api_keys FOR SELECT TO undolog_auth USING (true);
CREATE POLICY undolog_orgs_auth ON undolog_orgs FOR SELECT TO undolog_auth USING (true);

-- The new owner needs CREATE for the moment of the hand-over only.
GRANT CREATE ON SCHEMA public TO undolog_auth;
ALTER VIEW undolog_due OWNER TO undolog_auth;
ALTER FUNCTION undolog_authenticate(bytea) OWNER TO undolog_auth;
ALTER FUNCTION undolog_org_by_slug(text) OWNER TO undolog_auth;
REVOKE CREATE ON SCHEMA public FROM undolog_auth;
