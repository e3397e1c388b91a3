-- Whether a compensation is paused, and what the breaker of its route says.
-- Lock: none. Index: primary keys.
SELECT
  EXISTS (SELECT FROM undolog_pause_all)
  OR EXISTS (
    SELECT FROM undolog_pauses p
    WHERE p.org_id = $1 AND p.compensation_fn IN ('', $2)) AS is_paused,
  (SELECT b.state FROM undolog_route_breakers b
    WHERE b.org_id = $1 AND b.compensation_fn = $2 AND b.host = $3) AS breaker
