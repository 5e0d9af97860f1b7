-- Claims ready runs for a worker and raises their epochs. In turns: the first run of each handler comes before the
-- second of any, and the runs that the worker executes already count, so that the backlog of one handler does not block
-- another; within a turn the run that has been ready longest comes first. The first claim of a run records its
-- beginning: SEEN, or ROLLING_BACK if its rollback was requested.
-- Locks: the claimed rows of run, without those that other claims have locked; and the row of this worker, so that a
-- reaper that frees the runs of this worker sees this claim. A worker without a row claims nothing. Claimed runs leave
-- dead entries at the beginning of the index until it is vacuumed. So a queue is read from the known position; runs
-- launched during the last second may be older, if their transaction has just been committed.
-- $1 worker, $2 its identifier in events, $3 topics and $4 handlers (pairs), $5 how many, $6 an object: how many runs
-- the worker executes, by handler, $7 ids for as many events: cheaper to make in a program than in the server, $8 for
-- each pair how far it has been worked off, null where all of it is to be looked at, $9 for each pair the definition
-- that its runs are reserved for, 0 for those that are not, $10 the topology that the pairs follow from: a worker that
-- does not know of another process claims nothing, $11 which runs may be taken, null for all but suspects
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $1 AND topology = $10 FOR KEY SHARE
),
-- candidates with their turns: more than are claimed, since other claims may lock the first ones
queue AS (
    SELECT r.ctid, r.ready_at, r.place + coalesce(($6::jsonb ->> own.handler)::bigint, 0) AS turn
    FROM unnest($3::text[], $4::text[], $8::timestamptz[], $9::int[]) AS own (topic, handler, reached, lane)
    CROSS JOIN LATERAL (
        SELECT r.ctid, r.ready_at, row_number() OVER (ORDER BY r.ready_at) AS place
        FROM scoop.run r
        WHERE r.state = 'ready' AND r.handler = own.handler AND r.topic = own.topic AND r.reserved_for = own.lane
          -- values, so that the index is read from one to the other
          AND r.ready_at >= least(coalesce(own.reached, '-infinity'), (SELECT clock_timestamp() - interval '1 second'))
          AND r.ready_at <= (SELECT clock_timestamp())
          AND CASE WHEN $11::uuid[] IS NULL THEN NOT scoop.is_suspect(r.doubts, r.attempts, r.retries)
                   ELSE r.id = ANY ($11) END
        ORDER BY r.ready_at
        LIMIT least($5 + 20, 1 + 10000 / cardinality($4::text[]))
    ) r
    WHERE EXISTS (SELECT FROM own_worker)
),
taken AS (
    SELECT r.ctid
    FROM queue
    JOIN scoop.run r ON r.ctid = queue.ctid
    WHERE r.state = 'ready'
    ORDER BY queue.turn, queue.ready_at
    LIMIT $5
    FOR UPDATE OF r SKIP LOCKED
),
claimed AS (
    UPDATE scoop.run r
    SET state = 'running',
        owner = $1,
        epoch = r.epoch + 1,
        signal = NULL,
        signal_key = NULL,
        last_event_at = greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond'),
        rollback_started_at = CASE WHEN r.epoch = r.unclaimed_epoch AND r.rollback_requested THEN clock_timestamp()
                                   ELSE r.rollback_started_at END
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
)
SELECT c.ready_at, c.root, c.id, c.lineage, c.message_id, c.topic, c.handler, c.epoch, c.rolling_back,
       c.rollback_requested,
       c.step, c.jump, c.definition, c.reserved_for, c.iteration, c.handler_iteration, c.suspensions, c.completions,
       c.outputs, c.failure,
       c.attempts, c.retries, c.tried_under, c.context, c.replied, c.rollback_failed_before, c.parent,
       c.execution, c.execution_since, c.payload_of,
       c.rollback_since IS NOT NULL AS undoing,
       scoop.has_to_give_up(c.giving_up, c.give_up_at, clock_timestamp()) AS overdue,
       (SELECT m.payload FROM scoop.message m WHERE m.id = coalesce(c.payload_of, c.message_id)) AS payload,
       CASE WHEN c.epoch > c.unclaimed_epoch + 1 AND (
           SELECT child.id FROM scoop.run child
           WHERE child.root = c.root AND child.parent = c.id AND child.state = 'ended' LIMIT 1
       ) IS NOT NULL THEN scoop.failed_children(c.root, c.id) END AS failed_children
FROM claimed c
ORDER BY c.ready_at
