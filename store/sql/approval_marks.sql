-- Reads where many approval requests stand, for the callers that wait for their next change.
-- Promise: only requests of the organisation. Lock: none. Index: primary keys.
SELECT a.approval_request_id AS approval_id, a.effect_id, a.state::text AS state,
  a.granted_at IS NOT NULL AS is_granted, a.voided_at IS NOT NULL AS is_voided,
  a.quorum,
  (SELECT count(*) FROM undolog_approval_votes v
    WHERE v.approval_request_id = a.approval_request_id AND v.org_id = $1
      AND v.round = (SELECT max(w.round) FROM undolog_approval_votes w
        WHERE w.approval_request_id = a.approval_request_id AND w.org_id = $1)) AS ballots
FROM undolog_approval_requests a
WHERE a.org_id = $1 AND a.approval_request_id = ANY($2::uuid[])
