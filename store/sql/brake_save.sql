-- Writes an organisation's brake.
-- Promise: a state that an operator set is not overwritten by a sweep that read an older one.
-- Lock: the brake's row. Index: primary key.
INSERT INTO undolog_brakes AS b (org_id, state, expired, live, raised_at, hold_until,
  last_failed_at, set_by, classes)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'system:lease', $8)
ON CONFLICT (org_id) DO UPDATE SET
  state = EXCLUDED.state, expired = EXCLUDED.expired, live = EXCLUDED.live,
  raised_at = EXCLUDED.raised_at, hold_until = EXCLUDED.hold_until,
  last_failed_at = EXCLUDED.last_failed_at, set_by = EXCLUDED.set_by,
  classes = EXCLUDED.classes
WHERE b.state NOT IN ('stopped', 'forced')
