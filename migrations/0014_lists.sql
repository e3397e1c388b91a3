-- 0014 lists: the sight of due rollbacks and notifications in views of their own, so that each question
-- ends with its LIMIT. The indexes of lists are built by `undolog migrate`
-- (store/src/migrate/wanted.rs). Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0014', 'Lists: due rollbacks and notifications are read through an index')
ON CONFLICT (version) DO NOTHING;

-- undolog_due is a UNION ALL, and the planner cannot carry an order into the parts of one: whoever
-- asked it for the oldest rows of one kind had every row of that kind read and sorted.
CREATE VIEW undolog_due_rollbacks AS
  SELECT org_id, rollback_id AS subject_id, due_at, lease_expires_at AS lease, fence
  FROM undolog_rollbacks WHERE state IN ('draining', 'walking');
COMMENT ON VIEW undolog_due_rollbacks IS 'Rollbacks that are not over, without any payload';
CREATE VIEW undolog_due_notifications AS
  SELECT org_id, notification_id AS subject_id, due_at, lease_expires_at AS lease, fence
  FROM undolog_notifications WHERE state = 'pending';
COMMENT ON VIEW undolog_due_notifications IS 'Notifications that are to be sent, without any payload';
CREATE VIEW undolog_due_old_notifications AS
  SELECT org_id, notification_id AS subject_id, finished_at AS due_at
  FROM undolog_notifications WHERE state <> 'pending';
COMMENT ON VIEW undolog_due_old_notifications IS 'Notifications that are over, without any payload';

-- What lists are read by. Under row-level security a comparison that is not marked leakproof is no index
-- condition, and that of an enum is not: `state = …` filtered every row of the organisation. These
-- views hold keys only, and show only the organisation that is set, as the policies do.
CREATE VIEW undolog_listed_sessions AS
  SELECT org_id, session_id, started_at, state, principal, external_run_id
  FROM undolog_sessions
  WHERE org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid
    AND settled_at IS NULL;
COMMENT ON VIEW undolog_listed_sessions IS 'Keys of the sessions that lists show, of the organisation that is set';
CREATE VIEW undolog_listed_approvals AS
  SELECT org_id, approval_request_id, session_id, state, created_at
  FROM undolog_approval_requests
  WHERE org_id = NULLIF(current_setting('undolog.current_org_id', true), '')::uuid;
COMMENT ON VIEW undolog_listed_approvals IS 'Keys of approval requests, of the organisation that is set';

GRANT SELECT (started_at, principal, external_run_id, settled_at) ON undolog_sessions TO undolog_auth;
GRANT SELECT (session_id, created_at) ON undolog_approval_requests TO undolog_auth;
GRANT SELECT ON undolog_listed_sessions, undolog_listed_approvals TO undolog_app;
GRANT SELECT ON undolog_due_rollbacks, undolog_due_notifications, undolog_due_old_notifications
  TO undolog_worker;
-- The new owner needs CREATE for the moment of the hand-over only.
GRANT CREATE ON SCHEMA public TO undolog_auth;
ALTER VIEW undolog_due_rollbacks OWNER TO undolog_auth;
ALTER VIEW undolog_due_notifications OWNER TO undolog_auth;
ALTER VIEW undolog_due_old_notifications OWNER TO undolog_auth;
ALTER VIEW undolog_listed_sessions OWNER TO undolog_auth;
ALTER VIEW undolog_listed_approvals OWNER TO undolog_auth;
REVOKE CREATE ON SCHEMA public FROM undolog_auth;
