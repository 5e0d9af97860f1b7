-- Claims ready runs for a worker and raises their epochs. In turns: the first run of each handler comes before the
-- second of any, and the runs that the worker executes already count, so that the backlog of one handler does not block
-- another; within a turn the handler comes first that has the run that has been ready longest. Its runs come in the order
-- of their queue times, so that priority decides among the runs of one handler only. The first claim of a run records its
-- beginning: SEEN, or ROLLING_BACK if its rollback was requested.
-- Locks: the claimed rows of run, without those that other claims have locked; and the row of this worker, so that a
-- reaper that frees the runs of this worker sees this claim. A worker without a row claims nothing. Claimed runs leave
-- dead entries at the beginning of the index until it is vacuumed. So a queue is read from the known position; runs
-- launched during the last second may be older, if their transaction has just been committed. Levels of priority other than
-- normal are read only if any due run has one, or if the position in one is known. The latter spares the look at the index
-- of runs with priorities while it has dead entries.
-- $1 worker, $2 its identifier in events, $3 topics and $4 handlers (pairs), $5 how many, $6 an object: how many runs
-- the worker executes, by handler, $7 ids for as many events: cheaper to make in a program than in the server, $8 for
-- each pair how far it has been worked off, null where all of it is to be looked at, $9 for each pair the definition
-- that its runs are reserved for, 0 for those that are not, $10 the topology that the pairs follow from: a worker that
-- does not know of another process claims nothing, $11 which runs may be taken, null for all but suspects; as $8, $12 of
-- the runs with high and $13 of those with low priority
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $1 AND topology = $10 FOR KEY SHARE
),
-- candidates with their turns: more than are claimed, since other claims may lock the first ones
queue AS (
    SELECT r.ctid, r.since, r.place + coalesce(($6::jsonb ->> own.handler)::bigint, 0) AS turn
    FROM unnest($3::text[], $4::text[], $8::timestamptz[], $9::int[], $12::timestamptz[], $13::timestamptz[])
        AS own (topic, handler, reached, lane, reached_high, reached_low)
    CROSS JOIN LATERAL (
        SELECT r.ctid, min(r.ready_at) OVER queue AS since, row_number() OVER queue AS place
        FROM unnest(CASE WHEN num_nonnulls(VARIADIC $12::timestamptz[]) + num_nonnulls(VARIADIC $13::timestamptz[]) > 0
                           OR EXISTS (
                               SELECT FROM scoop.run r
                               WHERE r.state = 'ready' AND scoop.names_priority(r.context)
                                 AND r.ready_at <= (SELECT clock_timestamp()))
                         THEN '{1,0,-1}'::int[] ELSE '{0}' END) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.ready_at, scoop.queue_time(r.ready_at, level.priority) AS queue_time
            FROM scoop.run r
            WHERE r.state = 'ready' AND r.handler = own.handler AND r.topic = own.topic AND r.reserved_for = own.lane
              AND scoop.priority_of(r.context) = level.priority
              -- values, so that the index is read from one to the other
              AND r.ready_at >= least(
                  coalesce(CASE level.priority WHEN 0 THEN own.reached WHEN 1 THEN own.reached_high
                                               ELSE own.reached_low END, '-infinity'),
                  (SELECT clock_timestamp() - interval '1 second'))
              AND r.ready_at <= (SELECT clock_timestamp())
              AND CASE WHEN $11::uuid[] IS NULL THEN NOT scoop.is_suspect(r.doubts, r.attempts, r.retries)
                       ELSE r.id = ANY ($11) END
            ORDER BY r.ready_at
            LIMIT least($5 + 20, 1 + 10000 / cardinality($4::text[]))
        ) r
        WINDOW queue AS (ORDER BY r.queue_time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        ORDER BY r.queue_time
        LIMIT least($5 + 20, 1 + 10000 / cardinality($4::text[]))
    ) r
    WHERE EXISTS (SELECT FROM own_worker)
),
{taken}
