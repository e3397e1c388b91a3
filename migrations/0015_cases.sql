-- 0015 cases: what was sent under an undo entry's key, so that one key never carries two calls.
-- Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0015', 'Cases: what was sent under an undo entry''s key')
ON CONFLICT (version) DO NOTHING;

ALTER TABLE undolog_undo_attempts
  ADD COLUMN call_digest bytea,
  ADD COLUMN may_have_run bool NOT NULL DEFAULT true;
COMMENT ON COLUMN undolog_undo_attempts.call_digest IS 'Digest of the call that was sent, without its secrets; NULL: of an attempt from before 0015';
COMMENT ON COLUMN undolog_undo_attempts.may_have_run IS 'False: nothing was sent, or the endpoint said that it did not carry it out';

-- An operator can find that a compensation has not undone its effect. The database's copy of the core's
-- table; a test compares the two.
CREATE OR REPLACE FUNCTION undolog_effect_move_ok(a undolog_effect_state, b undolog_effect_state)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a
    WHEN 'pending' THEN b IN ('executing', 'approved', 'rejected')
    WHEN 'approved' THEN b IN ('committed', 'failed', 'unknown', 'rejected')
    WHEN 'executing' THEN b IN ('committed', 'failed', 'unknown')
    WHEN 'unknown' THEN b IN
      ('executing', 'approved', 'pending', 'committed', 'failed', 'compensating')
    WHEN 'failed' THEN b IN ('executing', 'pending', 'committed', 'compensating')
    WHEN 'rejected' THEN b = 'committed'
    WHEN 'committed' THEN b = 'compensating'
    WHEN 'compensating' THEN b IN ('compensated', 'compensation_failed')
    WHEN 'compensated' THEN b = 'compensating'
    WHEN 'compensation_failed' THEN b IN ('compensating', 'compensated')
    ELSE false END
$$;
