-- 0005 upstream: a tool may be registered with an HTTP endpoint that a proxy calls when the call was
-- granted. Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0005', 'Upstream: endpoints that proxies call for granted tools')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_tool_registry
  ADD COLUMN upstream jsonb,
  ADD COLUMN execute_on_approval bool NOT NULL DEFAULT true;
COMMENT ON COLUMN undolog_tool_registry.upstream IS 'HTTP endpoint that a proxy calls for a granted call';
COMMENT ON COLUMN undolog_tool_registry.execute_on_approval IS 'A proxy runs an approved call without being asked again';

-- Approvals that wait for a proxy: what was approved and not yet used.
CREATE INDEX idx_undolog_approval_unused ON undolog_approval_requests (org_id, resolved_at)
  WHERE state IN ('approved', 'auto_approved') AND granted_at IS NULL AND voided_at IS NULL;
