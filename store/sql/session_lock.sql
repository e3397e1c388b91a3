-- Locks a session and reads it with its organisation's policies.
-- Promise: the lock is granted first; then the clock and the organisation's row are read. What an
-- operator changed while the lock was waited for holds: a join would show the organisation as of the
-- start of the wait. Lock: the session row, FOR NO KEY UPDATE (rows that refer to it can still be added).
-- The rest of the transaction runs as a step does: plans that are made once per connection (a plan
-- for each call costs more than the call, and never pays: every statement goes by keys), no scan of a
-- table that was small when its plan was made, the counters of the documented triggers written by
-- session_save.sql, and the step's time, which due times are measured from. All of it ends with the
-- transaction.
-- Index: primary keys of undolog_sessions and undolog_orgs; undolog_service has one row per service.
WITH locked AS MATERIALIZED (
  SELECT s.*
  FROM undolog_sessions s
  WHERE s.session_id = $1 AND s.org_id = $2
  FOR NO KEY UPDATE OF s
)
SELECT l.session_id, l.org_id, l.project_id, l.principal, l.state::text AS state, l.implicit,
  l.via_proxy, l.session_month, l.signature_version, l.numbering, l.event_seq, l.last_position, l.undo_top,
  l.max_step, l.effects_total, l.commits_total, l.tool_calls_total, l.compensations_total,
  l.approvals_pending, l.started_at,
  l.completed_at, l.failed_at, l.failure_reason, l.failure_reason_raw, l.last_executed_at,
  l.last_rpc_at, l.lease_ms, l.lease_renewed_at, l.lease_hold_until, l.grant_lost_at,
  l.lease_failed_at, l.residue_count, l.unverified_count, l.settled_at, l.sealed_at,
  COALESCE(l.on_tool_failure, o.on_tool_failure) AS on_tool_failure,
  COALESCE(l.on_rejection, o.on_rejection) AS on_rejection,
  COALESCE(l.on_unknown, o.on_unknown) AS on_unknown,
  o.on_dead_letter, o.on_step_conflict, o.on_unregistered_tool, o.resume_window_seconds,
  o.settle_ms, o.registry_epoch, o.default_approval_timeout_seconds,
  o.auto_approve_on_timeout, o.webhook_url IS NOT NULL AS notifies,
  clock_timestamp() AS now,
  greatest(clock_timestamp(), (SELECT last_tick_at FROM undolog_service WHERE service = 'engine'))
    AS lease_from,
  set_config('undolog.step_at', clock_timestamp()::text, true) AS step_at,
  set_config('plan_cache_mode', 'force_generic_plan', true) AS plans,
  set_config('enable_seqscan', 'off', true) AS scans, set_config('jit', 'off', true) AS jit,
  set_config('undolog.counters_folded', 'on', true) AS counters
FROM locked l
CROSS JOIN LATERAL undolog_org_now(l.org_id) AS o
