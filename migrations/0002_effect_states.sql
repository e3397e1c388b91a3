-- 0002: two more effect states, alone in their file: a new enum value cannot be used in the
-- transaction that adds it, so everything that names them comes with 0003 or later.
--   failed   the call was reported as failed (it may or may not have been applied);
--   unknown  the call was granted and nobody reported how it ended.

SET LOCAL search_path = public, pg_temp;

ALTER TYPE undolog_effect_state ADD VALUE IF NOT EXISTS 'failed';
ALTER TYPE undolog_effect_state ADD VALUE IF NOT EXISTS 'unknown';

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0002', 'effect states failed and unknown');
