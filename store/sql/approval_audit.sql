-- Appends one decision to the audit trail of an approval request.
-- Lock: the session's lock is held. Index: none.
INSERT INTO undolog_approval_events (approval_request_id, org_id, action, actor, claimed_actor,
  note, args_diff, occurred_at, actor_ip)
VALUES ($1, $2, $3::text::undolog_approval_action, $4, $5, $6, $7::text::jsonb, $8, $9::text::inet)
