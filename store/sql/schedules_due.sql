-- The slot of each schedule that has not been run yet.
-- Promise: slots come from the database's clock. A slot that was run and lies ahead is one of before
-- the clock stepped back: it stops nothing. Lock: none. Index: none, the table has few rows.
SELECT s.name, k.slot
FROM undolog_schedules s
JOIN unnest($1::text[], $2::bigint[]) AS i (name, interval_ms) ON i.name = s.name
CROSS JOIN LATERAL (
  SELECT floor(extract(epoch FROM clock_timestamp()) * 1000 / i.interval_ms)::bigint AS slot) k
WHERE s.last_slot <> k.slot
