-- Looks a call up by its signature and its step, and takes the documented advisory lock.
-- Promise: signatures are looked up in the partition of the session's start month, which never
-- changes, so both sides of a month end see one call. Whether another call of the step still holds
-- it is asked only when there is one (step_holder.sql). Lock: the session's lock is held; the
-- advisory lock is tried, not waited for. Index: undolog_signatures_unique and
-- idx_undolog_signatures_step.
SELECT pg_try_advisory_xact_lock($5),
  (SELECT s.effect_id FROM undolog_signatures s
   WHERE s.session_month = $1 AND s.session_id = $2 AND s.call_signature = $3::text::char(64)
     AND s.org_id = $4),
  EXISTS (SELECT FROM undolog_signatures s
    WHERE s.session_month = $1 AND s.session_id = $2 AND s.step_index = $6 AND s.org_id = $4
      AND s.call_signature <> $3::text::char(64))
