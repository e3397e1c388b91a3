-- 0017 backlog: what a rollback that is not due waits for, and the list of what nobody knows read
-- through its index. Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0017', 'Backlog: what rollbacks wait for, what nobody knows read through its index')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_rollbacks
  ADD COLUMN waits_for text,
  ADD CONSTRAINT undolog_rollbacks_waits_for CHECK (waits_for IN
    ('calls', 'outcome', 'pause', 'limit', 'breaker', 'retry', 'worker')) NOT VALID;
COMMENT ON COLUMN undolog_rollbacks.waits_for IS
  'What it waited for when due_at was last set by a worker; NULL: nothing, or not known';

GRANT SELECT (waits_for) ON undolog_rollbacks TO undolog_auth;
CREATE OR REPLACE VIEW undolog_due_rollbacks AS
  SELECT org_id, rollback_id AS subject_id, due_at, lease_expires_at AS lease, fence, waits_for
  FROM undolog_rollbacks WHERE state IN ('draining', 'walking');

-- A condition with COALESCE is never leakproof, so under row-level security the index on what nobody
-- knows gave its order and no bound. Keys only, and only of the organisation that is set.
CREATE VIEW undolog_listed_unknown AS
  SELECT org_id, effect_id, executed_at, session_id, tool_name, state,
    COALESCE(lost_at, failed_at, executed_at) AS since
  FROM undolog_effect_log
  WHERE org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid
    AND (state = 'unknown' OR (state = 'failed' AND outcome = 'maybe_applied'));
COMMENT ON VIEW undolog_listed_unknown IS
  'Keys of the effects of which nobody knows whether they happened, of the organisation that is set';
GRANT SELECT (executed_at, session_id, tool_name, lost_at, failed_at, outcome) ON undolog_effect_log
  TO undolog_auth;
GRANT SELECT ON undolog_listed_unknown TO undolog_app;
-- The new owner needs CREATE for the moment of the hand-over only.
GRANT CREATE ON SCHEMA public TO undolog_auth;
ALTER VIEW undolog_listed_unknown OWNER TO undolog_auth;
REVOKE CREATE ON SCHEMA public FROM undolog_auth;
