-- Claims the first $5 runs of `queue`, as run_claim.sql says: `result`. A run is found by its place: `state::text` rules out the index
-- of ready runs, which may have many dead entries. {counted} is what else a claim under a key writes.
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
        signal = NULL,
        signal_key = NULL,{counted}
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
    SELECT c.ready_at, c.root, c.id, c.lineage, c.message_id, c.topic, c.handler, c.epoch, c.rolling_back,
           c.rollback_requested,
           c.step, c.jump, c.definition, c.reserved_for, c.iteration, c.handler_iteration, c.suspensions, c.completions,
           c.outputs, c.failure,
           c.attempts, c.retries, c.tried_under, c.context, c.replied, c.rollback_failure IS NOT NULL AS has_failed_before,
           c.parent,
           c.execution, c.execution_since, c.payload_of, c.signalled_by,
           c.rollback_since IS NOT NULL AS undoing,
           scoop.has_to_give_up(c.giving_up, c.give_up_at, clock_timestamp()) AS overdue,
           (SELECT m.payload FROM scoop.message m WHERE m.id = coalesce(c.payload_of, c.message_id)) AS payload,
           CASE WHEN c.epoch > c.unclaimed_epoch + 1 AND (
               SELECT child.id FROM scoop.run child
               WHERE child.root = c.root AND child.parent = c.id AND child.state IN ('ended', 'failed') LIMIT 1
           ) IS NOT NULL THEN scoop.failed_children(c.root, c.id) END AS failed_children
    FROM claimed c
)
