-- 0004 operators: what humans decide. Policies of approvals per tool and project, votes of a quorum,
-- probes, pauses, limits, breakers, notifications. Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0004', 'Operators: approval policies, quorum, probes, pauses, breakers, notifications')
ON CONFLICT (version) DO NOTHING;

-- ------------------------------------------------------------------ approvals

ALTER TABLE undolog_orgs
  ADD COLUMN requester_may_approve bool NOT NULL DEFAULT true,
  ADD COLUMN webhook_url text,
  ADD COLUMN webhook_secret text
    CONSTRAINT undolog_orgs_webhook CHECK (webhook_url IS NULL OR webhook_secret IS NOT NULL);
COMMENT ON COLUMN undolog_orgs.webhook_secret IS 'Name of the secret that signs notifications; the secret itself is the worker''s';

ALTER TABLE undolog_projects
  ADD COLUMN approval_timeout_seconds int
    CONSTRAINT undolog_projects_approval_timeout CHECK (approval_timeout_seconds BETWEEN 1 AND 31622400),
  ADD COLUMN auto_approve_on_timeout bool,
  ADD COLUMN approval_quorum int
    CONSTRAINT undolog_projects_quorum CHECK (approval_quorum BETWEEN 1 AND 20);

ALTER TABLE undolog_tool_registry
  ADD COLUMN approval_timeout_seconds int
    CONSTRAINT undolog_tool_approval_timeout CHECK (approval_timeout_seconds BETWEEN 1 AND 31622400),
  ADD COLUMN auto_approve_on_timeout bool,
  ADD COLUMN approval_quorum int
    CONSTRAINT undolog_tool_quorum CHECK (approval_quorum BETWEEN 1 AND 20),
  ADD COLUMN requester_may_approve bool,
  ADD COLUMN probe jsonb;
COMMENT ON COLUMN undolog_tool_registry.probe IS 'HTTP question that tells whether an unknown call happened';

ALTER TABLE undolog_approval_requests
  ADD COLUMN quorum int NOT NULL DEFAULT 1,
  ADD COLUMN requester_may_approve bool NOT NULL DEFAULT true,
  ADD COLUMN requested_by text NOT NULL DEFAULT 'system',
  ADD COLUMN voided_at timestamptz;
COMMENT ON COLUMN undolog_approval_requests.voided_at IS 'An approval that was given and then revoked, lapsed or taken by a rollback';
COMMENT ON COLUMN undolog_approval_requests.quorum IS 'Distinct principals that must approve the same arguments';

CREATE TABLE undolog_approval_votes (
  approval_request_id uuid NOT NULL
    REFERENCES undolog_approval_requests (approval_request_id) ON DELETE CASCADE,
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  principal text NOT NULL,
  args_digest bytea NOT NULL,
  round int NOT NULL,
  voted_at timestamptz NOT NULL,
  PRIMARY KEY (approval_request_id, round, principal)
);
COMMENT ON TABLE undolog_approval_votes IS 'Approvals that count towards a quorum; an edit begins a new round';

-- ------------------------------------------------------------------ unknown outcomes

ALTER TABLE undolog_effect_log
  ADD COLUMN probed_at timestamptz,
  ADD COLUMN probe_count int NOT NULL DEFAULT 0,
  ADD COLUMN probe_answer text CONSTRAINT undolog_effect_probe_answer
    CHECK (probe_answer IN ('happened', 'did_not_happen', 'cannot_tell')),
  ADD COLUMN probe_error text;
-- Unknown outcomes are listed, probed and resolved; there are few at any time.
CREATE INDEX idx_undolog_effect_log_unknown ON undolog_effect_log (org_id, lost_at)
  WHERE state = 'unknown';

-- ------------------------------------------------------------------ pauses, limits, breakers

ALTER TABLE undolog_compensation_registry
  ADD COLUMN concurrency_max int
    CONSTRAINT undolog_compensation_concurrency CHECK (concurrency_max BETWEEN 1 AND 10000),
  ADD COLUMN rate_per_minute int
    CONSTRAINT undolog_compensation_rate CHECK (rate_per_minute BETWEEN 1 AND 1000000);

-- What limits and breakers count: calls of a function, and calls of a host.
ALTER TABLE undolog_undo_attempts
  ADD COLUMN compensation_fn text,
  ADD COLUMN host text;
COMMENT ON COLUMN undolog_undo_attempts.host IS 'Scheme, host and port that was called; what a breaker is about';
CREATE INDEX idx_undolog_undo_attempts_running ON undolog_undo_attempts (org_id, compensation_fn)
  WHERE finished_at IS NULL;
CREATE INDEX idx_undolog_undo_attempts_started
  ON undolog_undo_attempts (org_id, compensation_fn, started_at);
CREATE INDEX idx_undolog_undo_attempts_host ON undolog_undo_attempts (org_id, host, finished_at)
  WHERE finished_at IS NOT NULL;

CREATE TABLE undolog_pauses (
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  compensation_fn text NOT NULL DEFAULT '',
  paused_at timestamptz NOT NULL,
  paused_by text NOT NULL,
  reason text NOT NULL DEFAULT '',
  PRIMARY KEY (org_id, compensation_fn)
);
COMMENT ON TABLE undolog_pauses IS 'Paused compensations: of one function, or of the organisation (empty name)';

CREATE TABLE undolog_breakers (
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  host text NOT NULL,
  state text NOT NULL DEFAULT 'closed' CONSTRAINT undolog_breakers_state
    CHECK (state IN ('closed', 'open', 'half_open')),
  window_started_at timestamptz NOT NULL,
  calls int NOT NULL DEFAULT 0,
  failures int NOT NULL DEFAULT 0,
  opened_at timestamptz,
  probe_undo_id uuid,
  opened_count int NOT NULL DEFAULT 0,
  PRIMARY KEY (org_id, host)
);
COMMENT ON TABLE undolog_breakers IS 'Circuit breaker per endpoint host of an organisation';

-- ------------------------------------------------------------------ notifications

CREATE TABLE undolog_notifications (
  notification_id uuid PRIMARY KEY DEFAULT uuidv7_or_random(),
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  session_id uuid NOT NULL REFERENCES undolog_sessions (session_id) ON DELETE CASCADE,
  kind text NOT NULL CONSTRAINT undolog_notifications_kind CHECK (kind IN
    ('approval_requested', 'approval_resolved', 'session_halted', 'dead_letter_created')),
  body jsonb NOT NULL,
  created_at timestamptz NOT NULL,
  due_at timestamptz NOT NULL,
  state text NOT NULL DEFAULT 'pending' CONSTRAINT undolog_notifications_state
    CHECK (state IN ('pending', 'sent', 'failed')),
  attempts int NOT NULL DEFAULT 0,
  lease_expires_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  last_error text,
  finished_at timestamptz,
  CONSTRAINT undolog_notifications_finished CHECK ((state = 'pending') = (finished_at IS NULL))
);
COMMENT ON TABLE undolog_notifications IS 'Outbox of signed webhooks, written with what they tell about';
CREATE INDEX idx_undolog_notifications_due ON undolog_notifications (org_id, due_at)
  WHERE state = 'pending';
CREATE INDEX idx_undolog_notifications_old ON undolog_notifications (finished_at)
  WHERE state <> 'pending';

DO $$
DECLARE
  target text;
BEGIN
  FOREACH target IN ARRAY ARRAY['undolog_approval_votes', 'undolog_pauses', 'undolog_breakers',
    'undolog_notifications'] LOOP
    PERFORM undolog_secure(target::regclass);
  END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE ON undolog_approval_votes, undolog_breakers, undolog_notifications
  TO undolog_app, undolog_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON undolog_pauses TO undolog_app;
GRANT SELECT ON undolog_pauses TO undolog_worker;
-- Finished notifications are cleaned up by the workers.
GRANT DELETE ON undolog_notifications TO undolog_worker;

INSERT INTO undolog_schedules (name) VALUES ('lapses'), ('probes'), ('notifications')
ON CONFLICT (name) DO NOTHING;

CREATE TABLE undolog_pause_all (
  singleton bool PRIMARY KEY DEFAULT true CONSTRAINT undolog_pause_all_one_row CHECK (singleton),
  paused_at timestamptz NOT NULL DEFAULT now(),
  paused_by text NOT NULL,
  reason text NOT NULL DEFAULT ''
);
COMMENT ON TABLE undolog_pause_all IS 'While its one row exists, no compensation of any organisation is called';
GRANT SELECT ON undolog_pause_all TO undolog_app, undolog_worker;

-- ------------------------------------------------------------------ sight of what is due

GRANT SELECT (granted_at, resolved_at, voided_at) ON undolog_approval_requests TO undolog_auth;
GRANT SELECT (org_id, notification_id, state, due_at, lease_expires_at, fence, finished_at)
  ON undolog_notifications TO undolog_auth;
GRANT SELECT (lost_at, probed_at) ON undolog_effect_log TO undolog_auth;
CREATE POLICY undolog_notifications_auth ON undolog_notifications FOR SELECT TO undolog_auth
  USING (true);

-- The same columns as before; four kinds are added.
CREATE OR REPLACE VIEW undolog_due AS
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
  FROM undolog_approval_requests WHERE state = 'pending'
  UNION ALL
  SELECT org_id, 'lapse', approval_request_id, resolved_at + interval '24 hours', NULL, 0
  FROM undolog_approval_requests
  WHERE state IN ('approved', 'auto_approved') AND granted_at IS NULL AND voided_at IS NULL
  UNION ALL
  SELECT org_id, 'probe', effect_id, greatest(lost_at, probed_at), NULL, attempt
  FROM undolog_effect_log WHERE state = 'unknown'
  UNION ALL
  SELECT org_id, 'notification', notification_id, due_at, lease_expires_at, fence
  FROM undolog_notifications WHERE state = 'pending'
  UNION ALL
  SELECT org_id, 'notification_old', notification_id, finished_at, NULL, fence
  FROM undolog_notifications WHERE state <> 'pending';
