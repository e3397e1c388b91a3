-- 0001: the documented schema of UndoLog (the product's "Database Schema Reference"), name by name.
--
-- What differs from that document, on purpose:
--   * policies read  NULLIF(current_setting('undolog.current_org_id', true), '')::uuid  and have WITH
--     CHECK too, so that "no org set" and "org setting ended with its transaction" (which leaves an
--     empty string) both show no row and raise no cast error;
--   * row-level security is FORCED, and every partition has its own policies: a partition that is
--     named directly does not inherit those of its parent;
--   * partitions run from 6 months before to 14 months after the month of this migration (UTC);
--   * the view runs with the rights of its caller (security_invoker);
--   * the counter triggers stand aside while undolog.counters_folded is 'on' (the writer of a batch
--     then adds the same totals itself, once);
--   * undolog_saturating_next() exists, so that replay_count stops at its type's end.
--
-- Run by `undolog migrate` as undolog_owner, which therefore owns all that is made here. The roles
-- exist before this file runs. undolog_owner is a member of undolog_auth and may grant CREATE on
-- schema public, so a later migration can hand a function over:
--   GRANT CREATE ON SCHEMA public TO undolog_auth;
--   ALTER FUNCTION ... OWNER TO undolog_auth;
--   REVOKE CREATE ON SCHEMA public FROM undolog_auth;

SET LOCAL search_path = public, pg_temp;
SET LOCAL timezone = 'UTC';

DO $$
BEGIN
    IF current_user <> 'undolog_owner' THEN
        RAISE EXCEPTION 'this migration must run as undolog_owner, not as %', current_user
            USING HINT = 'Run `undolog migrate`.';
    END IF;
END
$$;

-- Identifiers ---------------------------------------------------------------------------------------

-- Version-7 uuids: the server's own generator where it has one (PostgreSQL 18), else 48 bits of
-- milliseconds, the version and variant bits of RFC 9562, and 74 random bits of a version-4 uuid.
DO $$
BEGIN
    IF to_regprocedure('pg_catalog.uuidv7()') IS NOT NULL THEN
        EXECUTE $sql$
            CREATE FUNCTION uuidv7_or_random() RETURNS uuid
            LANGUAGE sql VOLATILE PARALLEL SAFE
            RETURN pg_catalog.uuidv7()
        $sql$;
    ELSE
        EXECUTE $sql$
            CREATE FUNCTION uuidv7_or_random() RETURNS uuid
            LANGUAGE sql VOLATILE PARALLEL SAFE
            RETURN (
                lpad(to_hex(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
                || '7'
                || substr(replace(gen_random_uuid()::text, '-', ''), 14)
            )::uuid
        $sql$;
    END IF;
END
$$;
COMMENT ON FUNCTION uuidv7_or_random() IS
    'A version-7 uuid: native where the server has uuidv7(), else made here.';

-- Adding 1 to a full smallint is an error before any trigger could look at the row, so the guard is
-- this function: SET replay_count = undolog_saturating_next(replay_count).
CREATE FUNCTION undolog_saturating_next(n smallint) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (LEAST(n::integer + 1, 32767))::smallint;
COMMENT ON FUNCTION undolog_saturating_next(smallint) IS
    'n + 1, or n when n is the greatest smallint: replay_count counts with it.';

-- Enum types ----------------------------------------------------------------------------------------

CREATE TYPE undolog_tool_tier AS ENUM ('safe', 'compensable', 'irreversible');
COMMENT ON TYPE undolog_tool_tier IS 'What undoing a tool''s call would take.';

CREATE TYPE undolog_effect_state AS ENUM (
    'pending', 'executing', 'committed', 'compensating', 'compensated', 'compensation_failed',
    'approved', 'rejected', 'replayed'
);
COMMENT ON TYPE undolog_effect_state IS 'The life of one recorded tool call.';

CREATE TYPE undolog_session_state AS ENUM (
    'active', 'completed', 'failed', 'compensating', 'compensated', 'awaiting_approval', 'halted'
);
COMMENT ON TYPE undolog_session_state IS 'The life of one agent run.';

CREATE TYPE undolog_approval_state AS ENUM (
    'pending', 'approved', 'rejected', 'timed_out', 'auto_approved'
);
COMMENT ON TYPE undolog_approval_state IS 'The life of one question put to a human.';

CREATE TYPE undolog_approval_action AS ENUM ('approve', 'reject', 'modify', 'timeout');
COMMENT ON TYPE undolog_approval_action IS 'What was done with an approval request.';

-- Tenants and registries ----------------------------------------------------------------------------

CREATE TABLE undolog_orgs (
    org_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    name text NOT NULL,
    slug text NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    default_approval_timeout_seconds int NOT NULL DEFAULT 3600,
    auto_approve_on_timeout bool NOT NULL DEFAULT false,
    CONSTRAINT undolog_orgs_slug_format CHECK (slug ~ '^[a-z0-9-]{2,64}$')
);
COMMENT ON TABLE undolog_orgs IS 'Tenants: the root of all other rows.';
CREATE INDEX idx_undolog_orgs_slug ON undolog_orgs (slug);

CREATE TABLE undolog_projects (
    project_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    name text NOT NULL,
    description text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT undolog_projects_org_name_unique UNIQUE (org_id, name)
);
COMMENT ON TABLE undolog_projects IS 'Groups of agent deployments inside an org.';
CREATE INDEX idx_undolog_projects_org ON undolog_projects (org_id);

CREATE TABLE undolog_tool_registry (
    tool_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    project_id uuid REFERENCES undolog_projects (project_id) ON DELETE SET NULL,
    tool_name text NOT NULL,
    tool_version text NOT NULL DEFAULT '1.0.0',
    tier undolog_tool_tier NOT NULL,
    irreversibility_reason text,
    compensation_ref text,
    tool_schema jsonb NOT NULL,
    risk_tags text[] NOT NULL DEFAULT '{}',
    estimated_impact text,
    registered_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    is_active bool NOT NULL DEFAULT true,
    CONSTRAINT undolog_tool_registry_unique UNIQUE (org_id, tool_name, tool_version),
    CONSTRAINT undolog_tool_compensable_has_ref
        CHECK (tier != 'compensable' OR compensation_ref IS NOT NULL),
    CONSTRAINT undolog_tool_irreversible_has_reason
        CHECK (tier != 'irreversible' OR irreversibility_reason IS NOT NULL)
);
COMMENT ON TABLE undolog_tool_registry IS 'Tools and their tiers, one row per version.';
CREATE INDEX idx_undolog_tool_registry_org ON undolog_tool_registry (org_id);
CREATE INDEX idx_undolog_tool_registry_project ON undolog_tool_registry (project_id);
CREATE INDEX idx_undolog_tool_registry_name ON undolog_tool_registry (tool_name);
CREATE INDEX idx_undolog_tool_registry_tier ON undolog_tool_registry (tier);

CREATE TABLE undolog_compensation_registry (
    compensation_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    fn_name text NOT NULL,
    fn_version text NOT NULL DEFAULT '1.0.0',
    description text NOT NULL,
    fn_body jsonb NOT NULL,
    args_schema jsonb NOT NULL,
    max_retries int NOT NULL DEFAULT 3,
    retry_backoff_ms int NOT NULL DEFAULT 1000,
    registered_at timestamptz NOT NULL DEFAULT now(),
    is_active bool NOT NULL DEFAULT true,
    CONSTRAINT undolog_compensation_registry_unique UNIQUE (org_id, fn_name, fn_version)
);
COMMENT ON TABLE undolog_compensation_registry IS
    'How a compensable call is undone: endpoint, arguments and retries, one row per version.';
CREATE INDEX idx_undolog_compensation_org ON undolog_compensation_registry (org_id);
CREATE INDEX idx_undolog_compensation_fn_name ON undolog_compensation_registry (fn_name);

-- Sessions ------------------------------------------------------------------------------------------

CREATE TABLE undolog_sessions (
    session_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    project_id uuid REFERENCES undolog_projects (project_id) ON DELETE SET NULL,
    external_run_id text,
    agent_name text,
    state undolog_session_state NOT NULL DEFAULT 'active',
    tool_calls_total int NOT NULL DEFAULT 0,
    compensations_total int NOT NULL DEFAULT 0,
    approvals_pending int NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT now(),
    completed_at timestamptz,
    failed_at timestamptz,
    failure_reason text,
    metadata jsonb NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE undolog_sessions IS
    'Agent runs; the row is also the lock under which all of a run''s steps are taken.';
CREATE INDEX idx_undolog_sessions_org ON undolog_sessions (org_id);
CREATE INDEX idx_undolog_sessions_project ON undolog_sessions (project_id);
CREATE INDEX idx_undolog_sessions_state ON undolog_sessions (state) WHERE state != 'completed';
CREATE INDEX idx_undolog_sessions_external ON undolog_sessions (external_run_id)
    WHERE external_run_id IS NOT NULL;
CREATE INDEX idx_undolog_sessions_started ON undolog_sessions (started_at DESC);

-- Approvals -----------------------------------------------------------------------------------------

CREATE TABLE undolog_approval_requests (
    approval_request_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
    effect_id uuid NOT NULL,
    tool_name text NOT NULL,
    tier undolog_tool_tier NOT NULL DEFAULT 'irreversible',
    irreversibility_reason text NOT NULL,
    risk_tags text[] NOT NULL DEFAULT '{}',
    estimated_impact text,
    proposed_args jsonb NOT NULL,
    agent_context jsonb NOT NULL DEFAULT '{}',
    state undolog_approval_state NOT NULL DEFAULT 'pending',
    timeout_at timestamptz NOT NULL,
    auto_approve_on_timeout bool NOT NULL DEFAULT false,
    resolved_at timestamptz,
    resolved_by text,
    approved_args jsonb,
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE undolog_approval_requests IS 'Irreversible calls that wait, or waited, for a human.';
CREATE INDEX idx_undolog_approval_org_state
    ON undolog_approval_requests (org_id, state, created_at DESC) WHERE state = 'pending';
CREATE INDEX idx_undolog_approval_session ON undolog_approval_requests (session_id);
CREATE INDEX idx_undolog_approval_timeout ON undolog_approval_requests (timeout_at)
    WHERE state = 'pending';

CREATE TABLE undolog_approval_events (
    event_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    approval_request_id uuid NOT NULL
        REFERENCES undolog_approval_requests (approval_request_id) ON DELETE CASCADE,
    org_id uuid NOT NULL,
    action undolog_approval_action NOT NULL,
    actor text NOT NULL,
    actor_ip inet,
    note text,
    args_diff jsonb,
    occurred_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE undolog_approval_events IS 'Append-only audit trail of decisions on approvals.';
CREATE INDEX idx_undolog_approval_events_request
    ON undolog_approval_events (approval_request_id, occurred_at ASC);

-- Effects -------------------------------------------------------------------------------------------

-- approval_request_id is SET NULL on delete because the documented cascades (org, session) delete
-- approvals while effects, which have no foreign key to either, stay. It is checked at the end of
-- the transaction, because rows are written in the order effects, then approvals.
CREATE TABLE undolog_effect_log (
    effect_id uuid NOT NULL DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL,
    session_id uuid NOT NULL,
    tool_id uuid,
    call_signature char(64) NOT NULL,
    tool_name text NOT NULL,
    tool_version text NOT NULL DEFAULT '1.0.0',
    tier undolog_tool_tier NOT NULL,
    step_index int NOT NULL,
    args_snapshot jsonb NOT NULL,
    result_snapshot jsonb,
    state undolog_effect_state NOT NULL DEFAULT 'pending',
    compensation_args jsonb,
    executed_at timestamptz NOT NULL DEFAULT now(),
    committed_at timestamptz,
    compensated_at timestamptz,
    replay_count smallint NOT NULL DEFAULT 0,
    last_replayed_at timestamptz,
    approval_request_id uuid
        REFERENCES undolog_approval_requests (approval_request_id) ON DELETE SET NULL
        DEFERRABLE INITIALLY DEFERRED,
    PRIMARY KEY (effect_id, executed_at)
) PARTITION BY RANGE (executed_at);
COMMENT ON TABLE undolog_effect_log IS
    'Every recorded tool call: one row per effect, its current state; partitioned by month.';
CREATE INDEX idx_undolog_effect_log_session ON undolog_effect_log (session_id, step_index);
CREATE INDEX idx_undolog_effect_log_state ON undolog_effect_log (state, org_id)
    WHERE state IN ('pending', 'executing', 'compensating', 'compensation_failed');
CREATE INDEX idx_undolog_effect_log_org_time ON undolog_effect_log (org_id, executed_at DESC);

-- There is no DEFAULT partition: it would make every later ATTACH scan it under an exclusive lock.
DO $$
DECLARE
    first_month timestamptz;
    tag text;
BEGIN
    FOR first_month IN
        SELECT date_trunc('month', now()) + make_interval(months => m)
        FROM generate_series(-6, 14) AS m
    LOOP
        tag := to_char(first_month, 'YYYY_MM');
        EXECUTE format(
            'CREATE TABLE undolog_effect_log_%s PARTITION OF undolog_effect_log
                 FOR VALUES FROM (%L) TO (%L)',
            tag, first_month, first_month + interval '1 month');
        EXECUTE format(
            'CREATE INDEX idx_vel_%s_brin ON undolog_effect_log_%s
                 USING brin (executed_at) WITH (pages_per_range = 32)',
            tag, tag);
        EXECUTE format(
            'CREATE UNIQUE INDEX idx_vel_%s_sig ON undolog_effect_log_%s (call_signature)', tag, tag);
    END LOOP;
END
$$;

CREATE TABLE undolog_undo_stack (
    undo_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
    session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
    effect_id uuid NOT NULL,
    stack_position int NOT NULL,
    compensation_fn text NOT NULL,
    compensation_version text NOT NULL DEFAULT '1.0.0',
    compensation_args jsonb NOT NULL,
    state text NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'running', 'compensated', 'failed', 'skipped')),
    retry_count smallint NOT NULL DEFAULT 0,
    last_error text,
    registered_at timestamptz NOT NULL DEFAULT now(),
    compensated_at timestamptz,
    CONSTRAINT undolog_undo_stack_session_position UNIQUE (session_id, stack_position)
);
COMMENT ON TABLE undolog_undo_stack IS
    'What must be called to undo each compensable effect; undone from the highest position down.';
CREATE INDEX idx_undolog_undo_stack_session ON undolog_undo_stack (session_id, stack_position DESC)
    WHERE state = 'pending';
CREATE INDEX idx_undolog_undo_stack_effect ON undolog_undo_stack (effect_id);

CREATE TABLE undolog_session_snapshots (
    snapshot_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
    session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
    org_id uuid NOT NULL,
    up_to_step int NOT NULL,
    state_bytes bytea NOT NULL,
    state_format text NOT NULL DEFAULT 'msgpack',
    effect_ids uuid[] NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT undolog_session_snapshots_unique UNIQUE (session_id, up_to_step)
);
COMMENT ON TABLE undolog_session_snapshots IS 'Saved session states from which a replay can start.';
CREATE INDEX idx_undolog_session_snapshots_session
    ON undolog_session_snapshots (session_id, up_to_step DESC);

CREATE TABLE undolog_schema_migrations (
    version text PRIMARY KEY,
    description text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE undolog_schema_migrations IS 'Which of our migrations this database has had.';

-- Counters ------------------------------------------------------------------------------------------

CREATE FUNCTION undolog_effect_log_count() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        UPDATE public.undolog_sessions SET tool_calls_total = tool_calls_total + 1
        WHERE session_id = NEW.session_id AND org_id = NEW.org_id;
    ELSIF NEW.state = 'compensated' AND OLD.state <> 'compensated' THEN
        UPDATE public.undolog_sessions SET compensations_total = compensations_total + 1
        WHERE session_id = NEW.session_id AND org_id = NEW.org_id;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION undolog_effect_log_count() IS
    'Keeps tool_calls_total and compensations_total of undolog_sessions.';

CREATE TRIGGER undolog_effect_log_counter
    AFTER INSERT OR UPDATE ON undolog_effect_log
    FOR EACH ROW
    WHEN (current_setting('undolog.counters_folded', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION undolog_effect_log_count();

CREATE FUNCTION undolog_approval_count() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state = 'pending' THEN
            UPDATE public.undolog_sessions SET approvals_pending = approvals_pending + 1
            WHERE session_id = NEW.session_id AND org_id = NEW.org_id;
        END IF;
    ELSIF OLD.state = 'pending' AND NEW.state <> 'pending' THEN
        UPDATE public.undolog_sessions SET approvals_pending = approvals_pending - 1
        WHERE session_id = NEW.session_id AND org_id = NEW.org_id;
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION undolog_approval_count() IS 'Keeps approvals_pending of undolog_sessions.';

CREATE TRIGGER undolog_approval_counter
    AFTER INSERT OR UPDATE ON undolog_approval_requests
    FOR EACH ROW
    WHEN (current_setting('undolog.counters_folded', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION undolog_approval_count();

-- The view ------------------------------------------------------------------------------------------

CREATE VIEW undolog_active_sessions WITH (security_invoker = true) AS
SELECT
    s.session_id,
    s.org_id,
    s.project_id,
    s.agent_name,
    s.external_run_id,
    s.state,
    s.tool_calls_total,
    s.compensations_total,
    s.approvals_pending,
    s.started_at,
    p.name AS project_name,
    (SELECT json_build_object(
        'tool_name', el.tool_name,
        'tier', el.tier,
        'state', el.state,
        'executed_at', el.executed_at
     ) FROM undolog_effect_log el
     WHERE el.session_id = s.session_id
     ORDER BY el.executed_at DESC
     LIMIT 1) AS latest_effect
FROM undolog_sessions s
LEFT JOIN undolog_projects p ON p.project_id = s.project_id
WHERE s.state IN ('active', 'awaiting_approval', 'compensating');
COMMENT ON VIEW undolog_active_sessions IS 'Live sessions, each with its latest effect.';

-- Row-level security --------------------------------------------------------------------------------

-- Two policies on each tenant table and partition: the tenant's own rows for everyone, and all rows
-- for undolog_owner, whom forced row-level security would otherwise blind.
DO $$
DECLARE
    tenant record;
BEGIN
    FOR tenant IN
        SELECT c.oid::regclass AS rel, coalesce(parent.relname, c.relname) AS name
        FROM pg_class c
        LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
        LEFT JOIN pg_class parent ON parent.oid = i.inhparent
        WHERE c.relnamespace = 'public'::regnamespace
          AND c.relkind IN ('r', 'p')
          AND coalesce(parent.relname, c.relname) IN (
              'undolog_orgs', 'undolog_projects', 'undolog_tool_registry',
              'undolog_compensation_registry', 'undolog_sessions', 'undolog_effect_log',
              'undolog_undo_stack', 'undolog_approval_requests', 'undolog_approval_events',
              'undolog_session_snapshots')
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', tenant.rel);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', tenant.rel);
        EXECUTE format(
            'CREATE POLICY %I ON %s
                 USING (org_id = NULLIF(current_setting(''undolog.current_org_id'', true), '''')::uuid)
                 WITH CHECK
                     (org_id = NULLIF(current_setting(''undolog.current_org_id'', true), '''')::uuid)',
            tenant.name || '_isolation', tenant.rel);
        EXECUTE format(
            'CREATE POLICY %I ON %s FOR ALL TO undolog_owner USING (true) WITH CHECK (true)',
            tenant.name || '_owner', tenant.rel);
    END LOOP;
END
$$;

-- Rights --------------------------------------------------------------------------------------------

-- Nobody may delete; nothing is granted on partitions, which are reached through their parent only.
REVOKE ALL ON FUNCTION uuidv7_or_random(), undolog_saturating_next(smallint),
    undolog_effect_log_count(), undolog_approval_count() FROM PUBLIC;

GRANT USAGE ON SCHEMA public TO undolog_app, undolog_worker, undolog_auth;
GRANT EXECUTE ON FUNCTION uuidv7_or_random(), undolog_saturating_next(smallint)
    TO undolog_app, undolog_worker, undolog_auth;
GRANT SELECT ON undolog_schema_migrations TO undolog_app, undolog_worker, undolog_auth;
GRANT SELECT ON undolog_active_sessions TO undolog_app, undolog_worker;

GRANT SELECT ON undolog_orgs, undolog_projects TO undolog_app, undolog_worker;
GRANT SELECT, INSERT, UPDATE ON
    undolog_tool_registry, undolog_compensation_registry, undolog_sessions, undolog_effect_log,
    undolog_undo_stack, undolog_approval_requests TO undolog_app;
GRANT SELECT, INSERT ON undolog_approval_events, undolog_session_snapshots TO undolog_app;

GRANT SELECT ON undolog_tool_registry, undolog_compensation_registry, undolog_session_snapshots
    TO undolog_worker;
GRANT SELECT, UPDATE ON
    undolog_sessions, undolog_effect_log, undolog_undo_stack, undolog_approval_requests
    TO undolog_worker;
GRANT SELECT, INSERT ON undolog_approval_events TO undolog_worker;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0001', 'the documented schema, roles'' rights and row-level security');
