-- Lists dead letters from the newest on: open or closed ones ($9; NULL: both), after a place in
-- that order ($10, $11), up to a number of rows ($12) and of bytes ($13; the first row always).
-- Promise: only rows of the organisation; those of settled sessions only when asked for ($8);
-- matched counts the rows before the cut by bytes. Lock: none.
-- Index: idx_undolog_dead_letters_open, primary keys, idx_undolog_effect_log_session.
WITH page AS (
  SELECT d.dead_letter_id, d.session_id, d.effect_id, d.undo_id, d.rollback_id, d.reason, d.detail,
    d.detail_raw, d.created_at, d.closed_at, d.closed_by, d.resolution, d.note, e.tool_name,
    e.step_index, COALESCE(u.stack_position, e.position, e.asked_position, 0) AS position,
    e.state::text AS effect_state, s.state::text AS session_state, u.compensation_fn, u.last_error,
    u.last_error_raw
  FROM undolog_dead_letters d
  JOIN undolog_sessions s ON s.session_id = d.session_id AND s.org_id = $1
  JOIN undolog_effect_log e ON e.effect_id = d.effect_id AND e.session_id = d.session_id
    AND e.org_id = $1 AND e.executed_at >= s.started_at
  LEFT JOIN undolog_undo_stack u ON u.undo_id = d.undo_id AND u.org_id = $1
  WHERE d.org_id = $1
    AND ($2::uuid[] IS NULL OR d.dead_letter_id = ANY($2))
    AND ($3::uuid IS NULL OR d.session_id = $3)
    AND ($4::text IS NULL OR e.tool_name = $4)
    AND ($5::text IS NULL OR u.compensation_fn = $5)
    AND ($6::text IS NULL OR d.reason = $6)
    AND d.created_at <= clock_timestamp() - $7 * interval '1 second'
    AND ($14::timestamptz IS NULL OR d.created_at <= $14)
    AND ($8 OR s.settled_at IS NULL)
    AND ($9::bool IS NULL OR (d.closed_at IS NOT NULL) = $9)
    AND ($10::timestamptz IS NULL OR (d.created_at, d.dead_letter_id) < ($10, $11::uuid))
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
