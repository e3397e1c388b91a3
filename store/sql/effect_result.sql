-- Stores the result of an effect. The caller compared it with what was stored before.
-- Lock: the session's lock is held. Index: primary key of the partition.
UPDATE undolog_effect_log SET result_snapshot = $4::text::jsonb, result_snapshot_raw = $5
WHERE effect_id = $1 AND executed_at = $2 AND org_id = $3 AND result_snapshot IS NULL
