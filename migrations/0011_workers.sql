-- 0011 workers: breakers of one route instead of a whole host, counts of the calls that begin, and
-- tickets that no acknowledgement erases. Only additions. Runs as undolog_owner.

SET search_path = public, pg_temp;

INSERT INTO undolog_schema_migrations (version, description)
VALUES ('0011', 'Workers: breakers of routes, counts of calls, tickets of any claim')
ON CONFLICT (version) DO NOTHING;

COMMENT ON COLUMN undolog_undo_stack.interruptions IS 'Calls in a row that ended a process which made them and nothing else';

-- The breakers of hosts (undolog_breakers) are left to the release before this one.
CREATE TABLE undolog_route_breakers (
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  compensation_fn text NOT NULL,
  host text NOT NULL,
  state text NOT NULL DEFAULT 'closed' CONSTRAINT undolog_route_breakers_state
    CHECK (state IN ('closed', 'open', 'half_open')),
  window_started_at timestamptz NOT NULL,
  calls int NOT NULL DEFAULT 0,
  failures int NOT NULL DEFAULT 0,
  opened_at timestamptz,
  probe_undo_id uuid,
  opened_count int NOT NULL DEFAULT 0,
  PRIMARY KEY (org_id, compensation_fn, host)
);
COMMENT ON TABLE undolog_route_breakers IS 'Circuit breaker per compensation and endpoint host of an organisation';
COMMENT ON COLUMN undolog_route_breakers.host IS 'Scheme, host and port';
COMMENT ON COLUMN undolog_route_breakers.probe_undo_id IS 'While half open: the entry whose call shows whether the route is back';
COMMENT ON COLUMN undolog_route_breakers.opened_count IS 'How often it opened in a row; the pause doubles each time';

CREATE TABLE undolog_call_counts (
  org_id uuid NOT NULL REFERENCES undolog_orgs (org_id) ON DELETE CASCADE,
  compensation_fn text NOT NULL,
  second timestamptz NOT NULL,
  calls int NOT NULL CONSTRAINT undolog_call_counts_calls CHECK (calls > 0),
  PRIMARY KEY (org_id, compensation_fn, second)
);
COMMENT ON TABLE undolog_call_counts IS 'Calls of a compensation with a rate that began in each of the last seconds';

DO $$
DECLARE
  target text;
BEGIN
  FOREACH target IN ARRAY ARRAY['undolog_route_breakers', 'undolog_call_counts'] LOOP
    PERFORM undolog_secure(target::regclass);
  END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE ON undolog_route_breakers TO undolog_app, undolog_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON undolog_call_counts TO undolog_worker;

-- Upserts one of a subject's tickets: one that is pending already and serves the purpose, else one
-- that nobody is running, since the acknowledgement of a running ticket goes by its id and would
-- erase this one. One that is pending for an earlier time is left alone: it will find nothing to do.
CREATE FUNCTION undolog_enqueue_one_of(ticket_ids text[], queue text, job jsonb, run_at timestamptz)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  chosen text;
BEGIN
  -- Locked before it is looked at, so that none of them begins to run meanwhile.
  PERFORM FROM apalis.jobs j WHERE j.id = ANY (ticket_ids) ORDER BY j.id FOR NO KEY UPDATE;
  SELECT t.id INTO chosen
  FROM unnest(ticket_ids) WITH ORDINALITY AS t (id, place)
  LEFT JOIN apalis.jobs j ON j.id = t.id
  ORDER BY CASE
      WHEN j.status = 'Pending' AND (j.run_at >= undolog_enqueue_one_of.run_at
        OR undolog_enqueue_one_of.run_at <= clock_timestamp()) THEN 0
      WHEN j.status = 'Pending' THEN 2
      WHEN j.status = 'Running' THEN 3
      ELSE 1 END, t.place
  LIMIT 1;
  PERFORM public.undolog_enqueue(chosen, queue, job, undolog_enqueue_one_of.run_at);
END $$;
REVOKE ALL ON FUNCTION undolog_enqueue_one_of(text[], text, jsonb, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION undolog_enqueue_one_of(text[], text, jsonb, timestamptz)
  TO undolog_app, undolog_worker;
