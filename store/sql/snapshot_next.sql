-- What the next snapshot of a session is made of: the first effects ($5) that were committed after
-- the snapshots so far, as they are now, and what those snapshots hold that left this state before
-- the last of these commits.
-- Promise: one statement, so that events and rows are of one moment. An effect that leaves the state
-- never comes back to it. Lock: the session's snapshot lock is held, so that there is one "snapshots
-- so far". Index: primary key of the events' partition, primary keys of the effects' partitions,
-- idx_undolog_session_snapshots_session.
WITH known AS MATERIALIZED (
  SELECT COALESCE(max(event_seq), 0) AS seq FROM undolog_session_snapshots
  WHERE session_id = $2 AND org_id = $3
), entered AS MATERIALIZED (
  SELECT v.subject_id AS effect_id, v.seq
  FROM undolog_effect_events v
  WHERE v.session_month = $1 AND v.session_id = $2 AND v.org_id = $3
    AND v.seq > (SELECT seq FROM known) AND v.subject = 'effect' AND v.to_state = 'committed'
    AND v.from_state IS DISTINCT FROM 'committed'
  ORDER BY v.seq
  LIMIT $5
), gone AS (
  SELECT v.subject_id AS effect_id, v.seq
  FROM undolog_effect_events v
  WHERE v.session_month = $1 AND v.session_id = $2 AND v.org_id = $3
    AND v.seq > (SELECT seq FROM known) AND v.seq <= (SELECT max(seq) FROM entered)
    AND v.subject = 'effect' AND v.from_state = 'committed' AND v.to_state <> 'committed'
    AND EXISTS (SELECT FROM undolog_session_snapshots s
      WHERE s.session_id = $2 AND s.org_id = $3 AND v.subject_id = ANY (s.effect_ids))
)
SELECT n.seq, CASE WHEN e.state = 'committed' THEN 'held' ELSE 'passed' END AS kind,
  e.effect_id, e.attempt, e.position, e.step_index, e.step_key, e.tool_name, e.tool_version,
  e.call_signature::text AS call_signature, e.result_snapshot::text AS result_text,
  e.result_snapshot_raw AS result_raw, e.duration_ms
FROM entered n
JOIN undolog_effect_log e ON e.effect_id = n.effect_id AND e.org_id = $3 AND e.session_id = $2
  AND e.executed_at BETWEEN $4 AND $6
UNION ALL
SELECT seq, 'gone', effect_id, 0, 0, 0, NULL, '', '', '', NULL, NULL, NULL FROM gone
ORDER BY seq
