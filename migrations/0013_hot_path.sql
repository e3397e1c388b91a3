-- 0013 hot path: the organisation's row as it is after a lock was waited for. Only additions. Runs
-- as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0013', 'Hot path: policies are read after the session''s lock')
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
