-- Writes back what a step changed of an approval request.
-- Promise: what was asked is not touched; the database refuses a second decision.
-- Lock: the session's lock is held. Index: primary key.
UPDATE undolog_approval_requests SET
  state = $3::text::undolog_approval_state, resolved_at = $4, resolved_by = $5, args_digest = $6,
  granted_at = $7, approved_args = $8::text::jsonb, approved_args_raw = $9, voided_at = $10
WHERE approval_request_id = $1 AND org_id = $2
