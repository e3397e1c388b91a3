-- Claims a schedule's slot.
-- Promise: of any number of workers one runs a slot; missed slots coalesce; a slot that lies ahead
-- of the database's clock (it stepped back) does not stop the schedule.
-- Lock: the schedule's row. Index: primary key.
UPDATE undolog_schedules SET
  last_slot = $2, fence = fence + 1, claimed_at = clock_timestamp(), claimed_by = $3
WHERE name = $1
  AND (last_slot < $2
    OR last_slot > floor(extract(epoch FROM clock_timestamp()) * 1000 / $4::bigint)::bigint)
