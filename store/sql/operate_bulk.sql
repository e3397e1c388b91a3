-- The dead letters that a bulk verb is about: named ones ($2, closed ones too: their operator hears
-- it), or the open ones that fit and were made by a time ($11).
-- Promise: those that the verb can change come first, so that calls which repeat come to an end;
-- those of a session stand together, from the lowest position up. Lock: none.
-- Index: idx_undolog_dead_letters_open, primary keys, idx_undolog_effect_log_session.
WITH matched AS (
  SELECT d.dead_letter_id, d.session_id,
    CASE WHEN $9 THEN d.undo_id IS NOT NULL OR d.reason <> 'OUTCOME_UNKNOWN'
      ELSE d.undo_id IS NOT NULL AND d.reason <> 'CONTRADICTED' END AS is_possible,
    COALESCE(u.stack_position, e.position) AS position
  FROM undolog_dead_letters d
  JOIN undolog_sessions s ON s.session_id = d.session_id AND s.org_id = $1
  JOIN undolog_effect_log e ON e.effect_id = d.effect_id AND e.session_id = d.session_id
    AND e.org_id = $1 AND e.executed_at >= s.started_at
  LEFT JOIN undolog_undo_stack u ON u.undo_id = d.undo_id AND u.org_id = $1
  WHERE d.org_id = $1
    AND ($2::uuid[] IS NULL OR d.dead_letter_id = ANY($2))
    AND (d.closed_at IS NULL OR $2::uuid[] IS NOT NULL)
    AND ($3::uuid IS NULL OR d.session_id = $3)
    AND ($4::text IS NULL OR e.tool_name = $4)
    AND ($5::text IS NULL OR u.compensation_fn = $5)
    AND ($6::text IS NULL OR d.reason = $6)
    AND d.created_at <= (SELECT clock_timestamp()) - $7 * interval '1 second'
    AND d.created_at <= $11
    AND ($8 OR s.settled_at IS NULL)
  -- Cut from the top, so that a call that takes a part of a session takes its upper part.
  ORDER BY is_possible DESC, d.session_id, position DESC NULLS LAST, d.dead_letter_id
  LIMIT $10
)
SELECT dead_letter_id, session_id FROM matched
ORDER BY is_possible DESC, session_id, position NULLS FIRST, dead_letter_id
