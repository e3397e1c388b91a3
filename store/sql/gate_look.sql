-- Whether a compensation is paused, and what its host's breaker says.
-- Lock: none. Index: primary keys.
SELECT
  EXISTS (SELECT FROM undolog_pause_all)
  OR EXISTS (
    SELECT FROM undolog_pauses p
    WHERE p.org_id = $1 AND p.compensation_fn IN ('', $2)) AS is_paused,
  (SELECT b.state FROM undolog_breakers b WHERE b.org_id = $1 AND b.host = $3) AS breaker
