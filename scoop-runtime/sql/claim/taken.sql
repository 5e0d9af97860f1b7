-- Claims the first $5 runs of `queue`, as run_claim.sql says: `result`. A run is found by its place: `state::text` rules out the index
-- of ready runs, which may have many dead entries. {counted} is what differs under a key.
taken AS (
    SELECT r.ctid
    FROM queue
    JOIN scoop.run r ON r.ctid = queue.ctid
    WHERE r.state::text = 'ready'
    ORDER BY queue.turn, queue.since
    LIMIT $5
    FOR UPDATE OF r SKIP LOCKED
),
claimed AS (
    UPDATE scoop.run r
    SET state = 'running',
        owner = $1,
        epoch = r.epoch + 1,
        awaited = NULL,{counted}
        queued_at = coalesce(r.queued_at, r.parked_since, r.ready_at),
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond')
    WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM taken))
    RETURNING r.*
),
begun AS (
    INSERT INTO scoop.message_event
        (id, message_id, type, coroutine_name, coroutine_identifier, cooperation_lineage, created_at, exception,
         context)
    SELECT ($7::uuid[])[row_number() OVER ()],
           message_id,
           CASE WHEN rollback_requested THEN 'ROLLING_BACK' ELSE 'SEEN' END::scoop.message_event_type,
           handler, $2, lineage, last_event_at,
           CASE WHEN rollback_requested THEN failure END,
           -- a run whose rollback was requested may have a newer context than the request had when it was written
           CASE WHEN rollback_requested THEN (
               SELECT e.context FROM scoop.message_event e
               WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = claimed.message_id
           ) ELSE context END
    FROM claimed
    WHERE epoch = unclaimed_epoch + 1
),
result AS (
    SELECT c.ready_at,
       {claimed_run}
    FROM claimed c
)
