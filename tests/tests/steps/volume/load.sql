-- What a large installation holds, as queries whose rows are copied into its tables: {live} live
-- sessions and {ended} ended ones of twenty organisations, of which the first has nine tenths.
-- A line "-- into <table> (<columns>)" begins each; what stands before the first is run once.

CREATE SCHEMA volume;
-- An id of a kind of row, with its time in front as the server's own have it.
CREATE FUNCTION volume.id(kind int, n bigint, t timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
  SELECT (lpad(to_hex((extract(epoch FROM t) * 1000)::bigint), 12, '0') || '7'
    || lpad(to_hex(kind), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid $$;
-- Live sessions began within two days, the others within the five months before.
CREATE UNLOGGED TABLE volume.sessions AS
  SELECT n, org_id, volume.id(1, n, began) AS session_id, began,
    (date_trunc('month', began AT TIME ZONE 'UTC'))::date AS month,
    volume.id(2, n, began + interval '1 second') AS effect_id, is_live, now0,
    CASE
      WHEN is_live AND n % 2 = 1 THEN 'compensating'
      WHEN is_live AND n % 20 = 0 THEN 'awaiting_approval'
      WHEN is_live THEN 'active'
      WHEN n % 1000 IN (7, 8) THEN 'halted'
      WHEN n % 10 = 5 THEN 'compensated'
      ELSE 'completed'
    END AS state
  FROM (
    SELECT n, n <= {live} AS is_live, t.now0,
      ('00000000-0000-7000-8000-0000000001' || lpad(CASE WHEN n % 10 < 9 THEN 1
        ELSE 2 + (n / 10) % 19 END::text, 2, '0'))::uuid AS org_id,
      CASE WHEN n <= {live} THEN t.now0 - interval '2 days' * (n::float8 / {live})
        ELSE t.now0 - interval '3 days' - interval '140 days' * ((n - {live})::float8 / {ended})
      END AS began
    FROM generate_series(1, {live} + {ended}) AS n,
      (SELECT date_trunc('second', now()) AS now0) AS t
  ) AS one;

INSERT INTO undolog_orgs (org_id, name, slug)
  SELECT ('00000000-0000-7000-8000-0000000001' || lpad(k::text, 2, '0'))::uuid, 'o', 'org-' || k
  FROM generate_series(1, 20) AS k;
INSERT INTO undolog_service (service, last_tick_at, resumed_at)
  SELECT 'engine', clock_timestamp(), now() - interval '30 days';

-- into undolog_sessions (session_id, org_id, agent_name, external_run_id, state, tool_calls_total, started_at, completed_at, failed_at, metadata, principal, implicit, session_month, event_seq, last_position, last_executed_at, last_rpc_at, lease_ms, lease_renewed_at, lease_failed_at, grant_lost_at, settled_at, settled_by)
SELECT session_id, org_id, 'agent', 'run-' || n % 1000, state, 1, began,
  CASE WHEN state = 'completed' THEN began + interval '1 minute' END,
  CASE WHEN state IN ('compensating', 'compensated', 'halted') THEN began + interval '1 minute' END,
  '{"a": 1}', 'principal-' || n % 100, n % 4 = 2, month, 3, 1, began + interval '1 second',
  began + interval '1 minute', CASE WHEN n % 4 <> 2 THEN 300000 END,
  CASE WHEN n % 4 <> 2 AND is_live THEN now0 + interval '1 hour' END,
  CASE WHEN n % 50 = 5 THEN began + interval '1 minute' END, NULL,
  CASE WHEN n % 1000 = 8 THEN now0 END, CASE WHEN n % 1000 = 8 THEN 'ann' END
FROM volume.sessions

-- into undolog_effect_log (effect_id, org_id, session_id, tool_id, call_signature, tool_name, tier, step_index, args_snapshot, result_snapshot, state, executed_at, committed_at, compensated_at, session_month, position, asked_position, granted_at, lease_renewed_at, lease_ms, lost_at, failed_at, outcome, principal)
SELECT effect_id, org_id, session_id, NULL, encode(sha256(n::text::bytea), 'hex'), 'pay',
  CASE WHEN state = 'awaiting_approval' THEN 'irreversible' ELSE 'compensable' END, 0, '{"n": 1}',
  CASE WHEN e <> 'pending' THEN '{"ok": true}' END, e, began + interval '1 second',
  CASE WHEN e IN ('committed', 'compensated') THEN began + interval '2 seconds' END,
  CASE WHEN e = 'compensated' THEN began + interval '2 minutes' END, month,
  CASE WHEN e <> 'pending' THEN 1 END, 1, began + interval '1 second',
  began + interval '1 second', CASE WHEN e = 'executing' THEN 900000 END,
  CASE WHEN e = 'unknown' THEN began + interval '1 minute' END,
  CASE WHEN e = 'failed' THEN began + interval '1 minute' END,
  CASE WHEN e = 'failed' THEN 'maybe_applied' END, 'principal-' || n % 100
FROM volume.sessions, LATERAL (SELECT CASE
    WHEN state = 'awaiting_approval' THEN 'pending'
    WHEN is_live AND n % 20 = 2 THEN 'executing'
    WHEN is_live AND n % 40 = 4 THEN 'unknown'
    WHEN state = 'halted' THEN 'failed'
    WHEN state = 'compensated' THEN 'compensated'
    ELSE 'committed' END AS e) AS of

-- into undolog_signatures (session_month, org_id, session_id, call_signature, effect_id, step_index)
SELECT month, org_id, session_id, encode(sha256(n::text::bytea), 'hex'), effect_id, 0
FROM volume.sessions

-- into undolog_undo_stack (undo_id, org_id, session_id, effect_id, stack_position, compensation_fn, compensation_args, state, registered_at, compensated_at)
SELECT volume.id(3, n, began), org_id, session_id, effect_id, 1, 'refund', '{"n": 1}',
  CASE state WHEN 'compensated' THEN 'compensated' WHEN 'halted' THEN 'failed' ELSE 'pending' END,
  began, CASE WHEN state = 'compensated' THEN began + interval '2 minutes' END
FROM volume.sessions WHERE state <> 'awaiting_approval'

-- into undolog_effect_events (session_month, org_id, session_id, seq, event_id, kind, subject, subject_id, to_state, actor, occurred_at, tx)
SELECT month, org_id, session_id, seq, volume.id(seq + 10, n, began),
  CASE seq WHEN 1 THEN 'session_begun' ELSE 'effect_moved' END,
  CASE seq WHEN 1 THEN 'session' ELSE 'effect' END,
  CASE seq WHEN 1 THEN session_id ELSE effect_id END,
  CASE seq WHEN 1 THEN 'active' WHEN 2 THEN 'executing' ELSE 'committed' END, 'agent',
  began + seq * interval '1 second', (3 + n / 100)::text::xid8
FROM volume.sessions, generate_series(1, 3) AS seq

-- into undolog_rollbacks (rollback_id, org_id, session_id, kind, state, cause, requested_by, created_at, due_at, drained_at, finished_at)
SELECT volume.id(4, n, began), org_id, session_id, 'whole',
  CASE state WHEN 'compensating' THEN 'walking' ELSE state END, 'fail', 'agent',
  began + interval '1 minute', began + interval '1 minute', began + interval '1 minute',
  CASE WHEN state <> 'compensating' THEN began + interval '3 minutes' END
FROM volume.sessions WHERE state IN ('compensating', 'compensated', 'halted')

-- into undolog_undo_attempts (undo_attempt_id, org_id, session_id, undo_id, rollback_id, round, number, fence, worker, fn_hash, method, url, result_known, started_at, finished_at, outcome, compensation_fn, host)
SELECT volume.id(5, n, began), org_id, session_id, volume.id(3, n, began), volume.id(4, n, began), 1,
  1, 1, 'w', '\x00'::bytea, 'POST', 'http://x/', true, began + interval '1 minute',
  began + interval '2 minutes', 'succeeded', 'refund', 'http://x'
FROM volume.sessions WHERE state IN ('compensated', 'halted')

-- into undolog_dead_letters (dead_letter_id, org_id, session_id, effect_id, undo_id, rollback_id, reason, created_at, closed_at, closed_by)
SELECT volume.id(6, n, began), org_id, session_id, effect_id, volume.id(3, n, began),
  volume.id(4, n, began), 'EXHAUSTED', began + interval '2 minutes',
  CASE WHEN state = 'compensated' THEN began + interval '1 hour' END,
  CASE WHEN state = 'compensated' THEN 'ann' END
FROM volume.sessions WHERE state = 'halted' OR state = 'compensated' AND n % 20 = 5

-- into undolog_approval_requests (approval_request_id, org_id, session_id, effect_id, tool_name, irreversibility_reason, proposed_args, state, timeout_at, resolved_at, resolved_by, approved_args, created_at, granted_at)
SELECT volume.id(7, n, began), org_id, session_id, effect_id, 'wipe', 'gone', '{"n": 1}',
  CASE WHEN state = 'awaiting_approval' THEN 'pending' WHEN n % 1000 = 9 THEN 'rejected'
    ELSE 'approved' END,
  CASE WHEN state = 'awaiting_approval' THEN now0 + interval '1 day' ELSE began END,
  CASE WHEN state <> 'awaiting_approval' THEN began END,
  CASE WHEN state <> 'awaiting_approval' THEN 'ann' END,
  CASE WHEN state <> 'awaiting_approval' AND n % 1000 <> 9 THEN '{"n": 1}' END, began,
  CASE WHEN state <> 'awaiting_approval' AND n % 1000 <> 9 THEN began END
FROM volume.sessions WHERE state = 'awaiting_approval' OR NOT is_live AND n % 10 IN (6, 9)

-- into undolog_notifications (notification_id, org_id, session_id, kind, body, created_at, due_at, state, finished_at)
SELECT volume.id(8, n, began), org_id, session_id, 'session_halted', '{}', began, began,
  CASE WHEN is_live THEN 'pending' WHEN n % 1000 = 7 THEN 'failed' ELSE 'sent' END,
  CASE WHEN NOT is_live THEN now0 - interval '6 days' * (n % 1000) / 1000 END
FROM volume.sessions WHERE is_live AND n % 2 = 1 OR NOT is_live AND n % 10 IN (5, 7)

-- into undolog_api_keys (key_id, org_id, key_hash, key_hint, role, principal, created_at)
SELECT volume.id(9, n, began), org_id, sha256(n::text::bytea), 'k', 'agent', 'principal-' || n % 100,
  began
FROM volume.sessions WHERE n <= 2000

-- into apalis.jobs (job, id, job_type, status, attempts, max_attempts, run_at, done_at)
SELECT '{}', session_id::text, 'undolog:rollback', CASE WHEN n % 2 = 0 THEN 'Done' ELSE 'Pending' END,
  0, 1, began, CASE WHEN n % 2 = 0 THEN now0 - interval '1 hour' END
FROM volume.sessions WHERE is_live

-- into undolog_sessions (session_id, org_id, state, started_at, last_executed_at, session_month, event_seq, last_position, metadata)
SELECT '00000000-0000-7000-8000-00000000ba5e'::uuid, '00000000-0000-7000-8000-000000000101'::uuid,
  'active', now0 - interval '3 hours', now0, (date_trunc('month', now0 AT TIME ZONE 'UTC'))::date, 60,
  60, '{}'
FROM volume.sessions WHERE n = 1

-- into undolog_effect_log (effect_id, org_id, session_id, call_signature, tool_name, tier, step_index, args_snapshot, result_snapshot, state, executed_at, committed_at, session_month, position)
SELECT volume.id(20, g, now0 - g * interval '1 minute'), '00000000-0000-7000-8000-000000000101'::uuid,
  '00000000-0000-7000-8000-00000000ba5e'::uuid, encode(sha256(('large' || g)::bytea), 'hex'), 'pay',
  'compensable', g, '{}', (SELECT jsonb_build_object('d', string_agg(md5(g::text || i), ''))
    FROM generate_series(1, 12000) AS i), 'committed', now0 - g * interval '1 minute', now0,
  (date_trunc('month', now0 AT TIME ZONE 'UTC'))::date, g
FROM volume.sessions, generate_series(1, 60) AS g WHERE n = 1

-- into undolog_undo_stack (undo_id, org_id, session_id, effect_id, stack_position, compensation_fn, compensation_args)
SELECT volume.id(21, g, now0 - g * interval '1 minute'), '00000000-0000-7000-8000-000000000101'::uuid,
  '00000000-0000-7000-8000-00000000ba5e'::uuid, volume.id(20, g, now0 - g * interval '1 minute'), g,
  'refund', (SELECT jsonb_build_object('d', string_agg(md5(g::text || i), ''))
    FROM generate_series(1, 12000) AS i)
FROM volume.sessions, generate_series(1, 60) AS g WHERE n = 1

-- into undolog_sessions (session_id, org_id, state, started_at, last_executed_at, failed_at, session_month, event_seq, last_position, metadata, settled_at, settled_by)
SELECT '00000000-0000-7000-8000-00000000ba5f'::uuid, '00000000-0000-7000-8000-000000000101'::uuid,
  'halted', now0 - interval '3 hours', now0, now0, (date_trunc('month', now0 AT TIME ZONE 'UTC'))::date,
  60, 60, '{}', now0, 'ann'
FROM volume.sessions WHERE n = 1

-- into undolog_effect_log (effect_id, org_id, session_id, call_signature, tool_name, tier, step_index, args_snapshot, state, executed_at, failed_at, outcome, session_month, position)
SELECT volume.id(22, g, now0), '00000000-0000-7000-8000-000000000101'::uuid,
  '00000000-0000-7000-8000-00000000ba5f'::uuid, encode(sha256(('settled' || g)::bytea), 'hex'), 'pay',
  'compensable', g, '{}', 'failed', now0 - interval '1 hour', now0 - interval '300 days' + g * interval '1 second',
  'maybe_applied', (date_trunc('month', now0 AT TIME ZONE 'UTC'))::date, g
FROM volume.sessions, generate_series(1, 10000) AS g WHERE n = 1

-- into undolog_dead_letters (dead_letter_id, org_id, session_id, effect_id, reason, created_at)
SELECT volume.id(23, g, now0), '00000000-0000-7000-8000-000000000101'::uuid,
  '00000000-0000-7000-8000-00000000ba5f'::uuid, volume.id(22, g, now0), 'OUTCOME_UNKNOWN',
  now0 - g * interval '1 millisecond'
FROM volume.sessions, generate_series(1, 10000) AS g WHERE n = 1
