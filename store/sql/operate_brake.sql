-- Writes an operator's word on an organisation's brake.
-- Promise: it stands until an operator takes it back: no sweep overwrites `stopped` or `forced`.
-- Lock: the brake's row. Index: primary key.
INSERT INTO undolog_brakes AS b (org_id, state, expired, live, raised_at, hold_until, set_by)
VALUES ($1, $2, 0, 0, clock_timestamp(), clock_timestamp(), $3)
ON CONFLICT (org_id) DO UPDATE SET state = EXCLUDED.state, set_by = EXCLUDED.set_by,
  raised_at = EXCLUDED.raised_at, hold_until = EXCLUDED.hold_until, last_failed_at = NULL
