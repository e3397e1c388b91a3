-- Writes down what became of a try to send a notification.
-- Promise: writes nothing unless the fence is still the caller's. Lock: the row. Index: primary key.
UPDATE undolog_notifications SET
  state = $4, lease_expires_at = NULL, last_error = $6,
  due_at = CASE WHEN $4 = 'pending'
    THEN clock_timestamp() + $5 * interval '1 millisecond' ELSE due_at END,
  finished_at = CASE WHEN $4 = 'pending' THEN NULL ELSE clock_timestamp() END
WHERE notification_id = $1 AND org_id = $2 AND fence = $3 AND state = 'pending'
