-- Reads one effect of a locked session.
-- Promise: prunes to the partition of the id's millisecond. Lock: none; the session's lock is held.
-- Index: primary key of the partition.
SELECT e.effect_id, e.session_id, e.tool_id, e.call_signature::text AS call_signature, e.tool_name,
  e.tool_version, e.tier::text AS tier, e.step_index, e.step_key, e.state::text AS state,
  e.executed_at, e.committed_at, e.compensated_at, e.attempt, e.position, e.asked_position,
  e.grant_token, e.granted_at, e.lease_renewed_at, e.lease_ms, e.execution_ends_at, e.lost_at,
  e.outcome, e.rejected_by, e.operator_said, e.failed_at, e.error, e.error_raw, e.duration_ms,
  e.idempotent, e.accepts_approved_args, e.principal, e.approval_request_id, e.replay_count,
  e.last_replayed_at, e.executor_tokens, e.result_by, e.result_snapshot::text AS result_text, e.result_snapshot_raw AS result_raw,
  e.lease_ms IS NOT NULL AND undolog_lease_over(e.lease_renewed_at, e.lease_ms, $6, $7)
    AS lease_over
FROM undolog_effect_log e
WHERE e.effect_id = $1 AND e.executed_at >= $2 AND e.executed_at < $3
  AND e.org_id = $4 AND e.session_id = $5
