-- 0023 on_rejection: a session can go on after a rejected call. Both checks take one more value, so that
-- every row that stands fits them. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0023', 'Rejections: a session can go on')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_orgs
  DROP CONSTRAINT undolog_orgs_on_rejection,
  ADD CONSTRAINT undolog_orgs_on_rejection
    CHECK (on_rejection IN ('halt', 'rollback', 'continue')) NOT VALID;
ALTER TABLE undolog_sessions
  DROP CONSTRAINT undolog_sessions_on_rejection,
  ADD CONSTRAINT undolog_sessions_on_rejection
    CHECK (on_rejection IN ('halt', 'rollback', 'continue')) NOT VALID;
