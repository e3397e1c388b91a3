-- What a rollback covers, by positions: a live one everything from its first position up, an ended
-- partial one up to the last position that the session had when it ended. Times decide nothing, so
-- that a step of the clock cannot put healthy work into the scope of a rollback that has ended.
-- Safe on a live database: columns with constant defaults, functions replaced in place, and an
-- update of the few partial rollbacks that have ended.

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0009', 'Rollback scopes with both ends, owed undo entries, results of earlier attempts');

ALTER TABLE undolog_rollbacks
  ADD COLUMN until_position int,
  ADD COLUMN started_seq bigint NOT NULL DEFAULT 0,
  ADD COLUMN returns_to text,
  ADD COLUMN owes_entries boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN undolog_rollbacks.until_position IS 'Last position in scope of a partial rollback that has ended; NULL: no upper end';
COMMENT ON COLUMN undolog_rollbacks.started_seq IS 'The session''s event number at the start: the order of its rollbacks';
COMMENT ON COLUMN undolog_rollbacks.returns_to IS 'Session state that a partial rollback gives back at its end';
COMMENT ON COLUMN undolog_rollbacks.owes_entries IS 'Skipped entries outside of its scope wait for its end to get a new entry';
ALTER TABLE undolog_rollbacks
  ADD CONSTRAINT undolog_rollbacks_returns_to
    CHECK (returns_to IN ('active', 'completed', 'failed', 'halted')) NOT VALID;

ALTER TABLE undolog_undo_stack ADD COLUMN owes_entry boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN undolog_undo_stack.owes_entry IS 'Skipped, and its call turned out to have happened while a rollback of other calls ran';

ALTER TABLE undolog_effect_attempts ADD COLUMN operator_said text;
COMMENT ON COLUMN undolog_effect_attempts.operator_said IS 'What an operator had said about this attempt';

-- The highest position that was there when the rollback ended.
-- Bounded: only partial rollbacks that have ended, one index look-up in the session's rows each.
UPDATE undolog_rollbacks r SET until_position = greatest(
  r.from_position - 1,
  (SELECT max(e.position) FROM undolog_effect_log e
   WHERE e.session_id = r.session_id AND e.org_id = r.org_id AND e.granted_at <= r.finished_at),
  (SELECT max(u.stack_position) FROM undolog_undo_stack u
   WHERE u.session_id = r.session_id AND u.org_id = r.org_id AND u.registered_at <= r.finished_at))
WHERE r.kind = 'partial' AND r.state = 'compensated';

-- The database's copy of the transition tables of the core; a test compares the two. Without casts to
-- text the functions are inlined into the triggers' conditions instead of being planned at each write.
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
    WHEN 'compensation_failed' THEN b IN ('compensating', 'compensated')
    ELSE false END
$$;
CREATE OR REPLACE FUNCTION undolog_session_move_ok(a undolog_session_state, b undolog_session_state)
RETURNS bool LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT CASE a
    WHEN 'active' THEN b IN
      ('awaiting_approval', 'completed', 'failed', 'halted', 'compensating')
    WHEN 'awaiting_approval' THEN b IN ('active', 'failed', 'halted', 'compensating')
    WHEN 'completed' THEN b IN ('failed', 'compensating')
    WHEN 'failed' THEN b = 'compensating'
    WHEN 'halted' THEN b IN ('failed', 'compensating')
    WHEN 'compensating' THEN b IN
      ('compensated', 'halted', 'active', 'awaiting_approval', 'completed', 'failed')
    WHEN 'compensated' THEN b IN ('compensating', 'halted')
    ELSE false END
$$;
