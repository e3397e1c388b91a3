-- Keeps a result on the attempt that it belongs to; the newest result of the effect is untouched.
-- Lock: the session's lock is held. Index: primary key.
INSERT INTO undolog_effect_attempts AS a (effect_id, attempt, org_id, session_id, ended_at, state,
  result_snapshot, result_snapshot_raw, duration_ms, committed_at)
VALUES ($1, $2, $3, $4, $5, $9, $6::text::jsonb, $7, $8, $5)
ON CONFLICT (effect_id, attempt) DO UPDATE SET result_snapshot = EXCLUDED.result_snapshot,
  result_snapshot_raw = EXCLUDED.result_snapshot_raw, duration_ms = EXCLUDED.duration_ms,
  committed_at = EXCLUDED.committed_at
WHERE a.result_snapshot IS NULL
