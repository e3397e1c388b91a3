-- 0006 lists: indexes behind what operators list, and notifications that are sent again. Only
-- additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0006', 'Lists: what nobody knows, decided approvals, notifications that were given up')
ON CONFLICT (version) DO NOTHING;

-- What nobody knows for sure: unknown effects, and failures that may have taken effect.
CREATE INDEX idx_undolog_effect_log_uncertain
  ON undolog_effect_log (org_id, (COALESCE(lost_at, failed_at, executed_at)), effect_id)
  WHERE state = 'unknown' OR (state = 'failed' AND outcome = 'maybe_applied');

-- The documented index holds only what waits for a decision.
CREATE INDEX idx_undolog_approval_listed
  ON undolog_approval_requests (org_id, state, created_at, approval_request_id);

ALTER TABLE undolog_notifications
  ADD COLUMN replayed_at timestamptz,
  ADD COLUMN replayed_by text,
  ADD CONSTRAINT undolog_notifications_replayed
    CHECK ((replayed_at IS NULL) = (replayed_by IS NULL));
COMMENT ON COLUMN undolog_notifications.replayed_at IS 'When an operator had it sent again; its day of tries begins anew';
CREATE INDEX idx_undolog_notifications_listed
  ON undolog_notifications (org_id, state, created_at, notification_id);
