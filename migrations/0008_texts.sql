-- 0008 texts: the reason of a rollback as it was given, where Postgres cannot hold it as text. Only
-- additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0008', 'Texts: the reason of a rollback as it was given')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_rollbacks ADD COLUMN reason_raw bytea;
COMMENT ON COLUMN undolog_rollbacks.reason_raw IS 'The reason with its NULs; NULL: reason holds it';
