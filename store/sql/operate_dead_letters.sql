-- Lists dead letters from the newest on: open or closed ones ($9; NULL: both), after a place in
-- that order ($10, $11), up to a number of rows ($12) and of bytes ($13; the first row always).
-- Promise: only rows of the organisation; those of settled sessions only when asked for ($8);
-- matched counts the rows before the cut by bytes. Lock: none.
-- Index: idx_undolog_dead_letters_open and idx_undolog_dead_letters_closed, from the newest on and no
-- further than the page goes, or than the reading for one page may ($15, $16: the last row of it);
-- idx_undolog_dead_letters_session or the primary key of what is named ($2, $3).
WITH candidate AS MATERIALIZED (
  (SELECT d.*, s.session_state, s.started_at, s.last_executed_at
    FROM undolog_dead_letters d
    CROSS JOIN LATERAL (
      SELECT o.state::text AS session_state, o.started_at,
        COALESCE(o.last_executed_at, o.started_at) AS last_executed_at
      FROM undolog_sessions o
      WHERE o.session_id = d.session_id AND o.org_id = $1 AND ($8 OR o.settled_at IS NULL)
      OFFSET 0) AS s
    WHERE d.org_id = $1 AND d.closed_at IS NULL
      AND $2::uuid[] IS NULL AND $3::uuid IS NULL AND ($9::bool IS NULL OR NOT $9)
      AND ($6::text IS NULL OR d.reason = $6)
      AND d.created_at <= (SELECT clock_timestamp()) - $7 * interval '1 second'
      AND d.created_at <= COALESCE($14::timestamptz, 'infinity')
      AND (d.created_at, d.dead_letter_id) < ($10::timestamptz, $11::uuid)
      AND (d.created_at, d.dead_letter_id) >= ($15::timestamptz, $16::uuid)
    ORDER BY d.created_at DESC, d.dead_letter_id DESC
    LIMIT CASE WHEN $4::text IS NULL AND $5::text IS NULL THEN $12::bigint END)
  UNION ALL
  (SELECT d.*, s.session_state, s.started_at, s.last_executed_at
    FROM undolog_dead_letters d
    CROSS JOIN LATERAL (
      SELECT o.state::text AS session_state, o.started_at,
        COALESCE(o.last_executed_at, o.started_at) AS last_executed_at
      FROM undolog_sessions o
      WHERE o.session_id = d.session_id AND o.org_id = $1 AND ($8 OR o.settled_at IS NULL)
      OFFSET 0) AS s
    WHERE d.org_id = $1 AND d.closed_at IS NOT NULL
      AND $2::uuid[] IS NULL AND $3::uuid IS NULL AND ($9::bool IS NULL OR $9)
      AND ($6::text IS NULL OR d.reason = $6)
      AND d.created_at <= (SELECT clock_timestamp()) - $7 * interval '1 second'
      AND d.created_at <= COALESCE($14::timestamptz, 'infinity')
      AND (d.created_at, d.dead_letter_id) < ($10::timestamptz, $11::uuid)
      AND (d.created_at, d.dead_letter_id) >= ($15::timestamptz, $16::uuid)
    ORDER BY d.created_at DESC, d.dead_letter_id DESC
    LIMIT CASE WHEN $4::text IS NULL AND $5::text IS NULL THEN $12::bigint END)
  UNION ALL
  (SELECT d.*, s.session_state, s.started_at, s.last_executed_at
    FROM (SELECT unnest($2::uuid[]) AS dead_letter_id
      UNION SELECT o.dead_letter_id FROM undolog_dead_letters o
      WHERE o.session_id = $3 AND o.org_id = $1) AS named
    CROSS JOIN LATERAL (SELECT * FROM undolog_dead_letters o
      WHERE o.dead_letter_id = named.dead_letter_id AND o.org_id = $1 OFFSET 0) AS d
    CROSS JOIN LATERAL (
      SELECT o.state::text AS session_state, o.started_at,
        COALESCE(o.last_executed_at, o.started_at) AS last_executed_at
      FROM undolog_sessions o
      WHERE o.session_id = d.session_id AND o.org_id = $1 AND ($8 OR o.settled_at IS NULL)
      OFFSET 0) AS s
    WHERE d.org_id = $1 AND ($2::uuid[] IS NULL OR d.dead_letter_id = ANY($2))
      AND ($3::uuid IS NULL OR d.session_id = $3)
      AND ($9::bool IS NULL OR (d.closed_at IS NOT NULL) = $9)
      AND ($6::text IS NULL OR d.reason = $6)
      AND d.created_at <= (SELECT clock_timestamp()) - $7 * interval '1 second'
      AND d.created_at <= COALESCE($14::timestamptz, 'infinity')
      AND (d.created_at, d.dead_letter_id) < ($10::timestamptz, $11::uuid)
    ORDER BY d.created_at DESC, d.dead_letter_id DESC
    LIMIT CASE WHEN $4::text IS NULL AND $5::text IS NULL THEN $12::bigint END)
), page AS (
  SELECT d.dead_letter_id, d.session_id, d.effect_id, d.undo_id, d.rollback_id, d.reason, d.detail,
    d.detail_raw, d.created_at, d.closed_at, d.closed_by, d.resolution, d.note, e.tool_name,
    e.step_index, COALESCE(u.stack_position, e.position, e.asked_position, 0) AS position,
    e.effect_state, d.session_state, u.compensation_fn, u.last_error, u.last_error_raw
  FROM candidate d
  CROSS JOIN LATERAL (
    SELECT l.tool_name, l.step_index, l.position, l.asked_position, l.state::text AS effect_state
    FROM undolog_effect_log l
    WHERE l.effect_id = d.effect_id AND l.session_id = d.session_id AND l.org_id = $1
      AND l.executed_at >= d.started_at AND l.executed_at <= d.last_executed_at
    OFFSET 0) AS e
  LEFT JOIN LATERAL (
    SELECT w.stack_position, w.compensation_fn, w.last_error, w.last_error_raw
    FROM undolog_undo_stack w WHERE w.undo_id = d.undo_id AND w.org_id = $1
    OFFSET 0) AS u ON true
  WHERE ($4::text IS NULL OR e.tool_name = $4) AND ($5::text IS NULL OR u.compensation_fn = $5)
  ORDER BY d.created_at DESC, d.dead_letter_id DESC
  LIMIT $12
), sized AS (
  SELECT page.*, count(*) OVER () AS matched,
    row_number() OVER (ORDER BY created_at DESC, dead_letter_id DESC) AS place,
    sum(octet_length(detail) + COALESCE(octet_length(note), 0)
      + COALESCE(octet_length(last_error), 0))
      OVER (ORDER BY created_at DESC, dead_letter_id DESC) AS bytes
  FROM page
)
SELECT d.*,
  (SELECT count(*) FROM undolog_undo_attempts a
    WHERE a.undo_id = d.undo_id AND a.org_id = $1) AS attempts
FROM sized d
WHERE d.place = 1 OR d.bytes <= $13
ORDER BY d.place
