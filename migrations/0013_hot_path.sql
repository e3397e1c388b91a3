-- 0013 hot path: the organisation's row as it is after a lock was waited for. Only additions. Runs
-- as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0013', 'Hot path: policies after the lock, the top of the undo stack, fewer key locks')
ON CONFLICT (version) DO NOTHING;

-- ------------------------------------------------------------------ policies after the lock

-- A statement that waits for a lock reads the locked row again when it gets it, and every other row
-- as of its own start. A function that is VOLATILE takes a new snapshot for each statement in it, so
-- what it reads was committed before it was called.
CREATE FUNCTION undolog_org_now(wanted uuid) RETURNS undolog_orgs
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
  found_org public.undolog_orgs;
BEGIN
  SELECT o.* INTO found_org FROM public.undolog_orgs o WHERE o.org_id = wanted;
  RETURN found_org;
END $$;
COMMENT ON FUNCTION undolog_org_now(uuid) IS
  'The organisation''s row as of this call, inside a statement that began before a lock was granted';
REVOKE ALL ON FUNCTION undolog_org_now(uuid) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION undolog_org_now(uuid) TO undolog_app, undolog_worker;

-- ------------------------------------------------------------------ the top of the undo stack

ALTER TABLE undolog_sessions ADD COLUMN undo_top int;
COMMENT ON COLUMN undolog_sessions.undo_top IS 'No pending or running undo entry stands above this position; NULL: not known';

-- ------------------------------------------------------------------ keys that were checked before

-- A foreign key locks the row that it names. Rows of calls name their organisation, and so every
-- call of it locked one row, which becomes a list of lockers (a MultiXact) as soon as two run at
-- once. A step that writes such a row holds the lock of its session, which it found by the
-- organisation, and the row names that session, or an entry or a request of it: that key stays, and
-- takes the row along when the organisation is deleted. The documented keys stay as they are.
ALTER TABLE undolog_undo_attempts
  DROP CONSTRAINT IF EXISTS undolog_undo_attempts_org_id_fkey,
  DROP CONSTRAINT IF EXISTS undolog_undo_attempts_session_id_fkey;
ALTER TABLE undolog_effect_attempts
  DROP CONSTRAINT IF EXISTS undolog_effect_attempts_org_id_fkey;
ALTER TABLE undolog_rollbacks DROP CONSTRAINT IF EXISTS undolog_rollbacks_org_id_fkey;
ALTER TABLE undolog_dead_letters DROP CONSTRAINT IF EXISTS undolog_dead_letters_org_id_fkey;
ALTER TABLE undolog_notifications DROP CONSTRAINT IF EXISTS undolog_notifications_org_id_fkey;
ALTER TABLE undolog_approval_votes DROP CONSTRAINT IF EXISTS undolog_approval_votes_org_id_fkey;
