-- Issues a ticket for every rollback that is due and that nobody holds.
-- Promise: a ticket that is pending and due stays as it is; the ids come from the caller, those of
-- one rollback with commas between them. Lock: the tickets' rows. Index: unique_job_id of the queue.
SELECT count(undolog_enqueue_one_of(string_to_array(r.ticket_ids, ','), $1, r.job,
  clock_timestamp()))
FROM unnest($2::text[], $3::jsonb[]) AS r (ticket_ids, job)
