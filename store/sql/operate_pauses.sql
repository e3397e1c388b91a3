-- Lists the pauses of an organisation by name, after a name ($2; NULL: from the first), up to a
-- number of rows ($3) and of bytes ($4; the first row always).
-- Promise: only rows of the organisation; matched counts the rows before the cut by bytes.
-- Lock: none. Index: primary key.
WITH page AS (
  SELECT compensation_fn, paused_at, paused_by, reason
  FROM undolog_pauses
  WHERE org_id = $1 AND ($2::text IS NULL OR compensation_fn > $2)
  ORDER BY compensation_fn
  LIMIT $3
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY compensation_fn) AS place,
    sum(octet_length(reason)) OVER (ORDER BY compensation_fn) AS bytes
  FROM page
)
SELECT * FROM sized WHERE place = 1 OR bytes <= $4 ORDER BY place
