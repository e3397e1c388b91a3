-- Takes the questions about unknown calls of an organisation that are due, and counts them.
-- Promise: a question is counted before it is asked, so that no crash makes it endless; the pause
-- before each doubles; a call that was lost anew is asked about anew. The arguments are those that
-- were approved, where they were edited. Time: the database's clock.
-- Lock: the effects' rows; those of others are skipped. Index: idx_undolog_effect_log_unknown.
WITH due AS (
  SELECT e.effect_id, e.executed_at, n.asked, t.probe
  FROM undolog_effect_log e
  JOIN undolog_tool_registry t ON t.tool_id = e.tool_id AND t.org_id = e.org_id
  CROSS JOIN LATERAL (SELECT
    COALESCE(e.lost_at, e.executed_at) AS lost_at,
    CASE WHEN e.probed_at >= COALESCE(e.lost_at, e.executed_at)
      THEN e.probe_count ELSE 0 END AS asked) AS n
  WHERE e.org_id = $1 AND e.state = 'unknown' AND t.probe IS NOT NULL AND n.asked < $2
    AND greatest(n.lost_at, e.probed_at)
      + $3::bigint * (1 << n.asked) * interval '1 millisecond' <= clock_timestamp()
  ORDER BY n.lost_at LIMIT $4
  FOR NO KEY UPDATE OF e SKIP LOCKED
)
UPDATE undolog_effect_log e SET probed_at = clock_timestamp(), probe_count = d.asked + 1
FROM due d
JOIN undolog_orgs o ON o.org_id = $1
WHERE e.effect_id = d.effect_id AND e.executed_at = d.executed_at AND e.org_id = $1
RETURNING e.session_id, e.effect_id, e.attempt, o.slug AS org_slug, d.probe::text AS probe_text,
  COALESCE((SELECT a.approved_args FROM undolog_approval_requests a
    WHERE a.approval_request_id = e.approval_request_id AND a.org_id = $1
      AND a.granted_at IS NOT NULL), e.args_snapshot)::text AS args_text,
  CASE WHEN EXISTS (SELECT FROM undolog_approval_requests a
      WHERE a.approval_request_id = e.approval_request_id AND a.org_id = $1
        AND a.granted_at IS NOT NULL AND a.approved_args IS NOT NULL)
    THEN (SELECT a.approved_args_raw FROM undolog_approval_requests a
      WHERE a.approval_request_id = e.approval_request_id AND a.org_id = $1)
    ELSE e.args_snapshot_raw END AS args_raw
