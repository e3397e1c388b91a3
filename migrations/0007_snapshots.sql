-- 0007 snapshots: what the worker needs to write the documented session snapshots, and a replay to
-- read them. Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0007', 'Snapshots: what they reflect and what they take back')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_sessions ADD COLUMN commits_total int NOT NULL DEFAULT 0;
COMMENT ON COLUMN undolog_sessions.commits_total IS 'Effects that were ever committed; each fiftieth asks for a snapshot';

ALTER TABLE undolog_session_snapshots
  ADD COLUMN event_seq bigint NOT NULL DEFAULT 0,
  ADD COLUMN invalidated uuid[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN undolog_session_snapshots.event_seq IS 'The session''s events up to this number are reflected by this snapshot and those before it';
COMMENT ON COLUMN undolog_session_snapshots.invalidated IS 'Effects of earlier snapshots that are committed no more';
COMMENT ON COLUMN undolog_session_snapshots.effect_ids IS 'Effects whose results this snapshot holds';

GRANT INSERT ON undolog_session_snapshots TO undolog_worker;
