-- Asks for the approval of an irreversible call.
-- Promise: in the transaction that records the call. Lock: the session's lock is held.
-- Index: none; the documented trigger counts the session's pending requests.
INSERT INTO undolog_approval_requests (approval_request_id, org_id, session_id, effect_id, attempt,
  tool_name, irreversibility_reason, risk_tags, estimated_impact, proposed_args,
  proposed_args_raw, agent_context, agent_context_raw, timeout_at, auto_approve_on_timeout,
  created_at, quorum, requester_may_approve, requested_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::text::jsonb, $11, $12::text::jsonb, $13, $14, $15,
  $16, $17, $18, $19)
