-- The dead letters that a bulk verb is about: named ones ($2, closed ones too: their operator hears
-- it), or the open ones of these sessions ($3) that fit and were made by a time ($11).
-- Promise: those that the verb can change come first, so that calls which repeat come to an end;
-- those of a session stand together, from the lowest position up. Lock: none.
-- Index: idx_undolog_dead_letters_session or the primary key of what is named, then primary keys and
-- idx_undolog_effect_log_session.
WITH wanted AS MATERIALIZED (
  SELECT o.dead_letter_id FROM undolog_dead_letters o
  WHERE $2::uuid[] IS NULL AND o.session_id = ANY ($3::uuid[]) AND o.org_id = $1
    AND o.closed_at IS NULL
  UNION ALL
  SELECT DISTINCT unnest($2::uuid[])
), matched AS (
  SELECT d.dead_letter_id, d.session_id,
    CASE WHEN $9 THEN d.undo_id IS NOT NULL OR d.reason <> 'OUTCOME_UNKNOWN'
      ELSE d.undo_id IS NOT NULL AND d.reason <> 'CONTRADICTED' END AS is_possible,
    COALESCE(u.stack_position, e.position) AS position
  FROM wanted
  CROSS JOIN LATERAL (SELECT * FROM undolog_dead_letters o
    WHERE o.dead_letter_id = wanted.dead_letter_id AND o.org_id = $1 OFFSET 0) AS d
  CROSS JOIN LATERAL (
    SELECT o.settled_at, o.started_at, COALESCE(o.last_executed_at, o.started_at) AS last_executed_at
    FROM undolog_sessions o WHERE o.session_id = d.session_id AND o.org_id = $1 OFFSET 0) AS s
  CROSS JOIN LATERAL (
    SELECT l.tool_name, l.position FROM undolog_effect_log l
    WHERE l.effect_id = d.effect_id AND l.session_id = d.session_id AND l.org_id = $1
      AND l.executed_at >= s.started_at AND l.executed_at <= s.last_executed_at
    OFFSET 0) AS e
  LEFT JOIN LATERAL (
    SELECT w.stack_position, w.compensation_fn FROM undolog_undo_stack w
    WHERE w.undo_id = d.undo_id AND w.org_id = $1 OFFSET 0) AS u ON true
  WHERE (d.closed_at IS NULL OR $2::uuid[] IS NOT NULL)
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
SELECT dead_letter_id, session_id, is_possible FROM matched
ORDER BY is_possible DESC, session_id, position NULLS FIRST, dead_letter_id
