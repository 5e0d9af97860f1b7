-- Returns in how many seconds the next run of this worker is ready, the next waiting run is overdue, or a pause is over;
-- negative if that is past, null if there is none. Also whether a pause is over; and whether a worker is dead, which costs next to nothing where all live; the
-- current topology; and the suspect that has been ready longest, with its queue.
-- Runs that are ready later than in a day are not looked for: of those that wait for a signal, only dead entries may be left.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 topics, $2 handlers and $4 the definitions that their runs are reserved for (triples), $3 the asking worker, $5
-- whether it may claim a suspect, $6 for each queue the position, null where all of it is to be looked at; the
-- same $7 of the runs with high and $8 of those with low priority; $9 the transactions in progress at the last look, and $10 since when
-- runs of each may be ready, null if that is unknown; $11 for each queue whether its new runs are paused
--
-- Of many queues only those of handlers with ready runs are looked at. A queue is read from the known position, as in run_claim.sql.
WITH RECURSIVE own_queue AS MATERIALIZED (
    SELECT handler, topic, lane, reached, reached_high, reached_low, begun_only
    FROM unnest($2::text[], $1::text[], $4::int[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $11::boolean[])
        AS own (handler, topic, lane, reached, reached_high, reached_low, begun_only)
),
late AS MATERIALIZED (
    SELECT min(coalesce(open.since, '-infinity')) AS since
    FROM unnest($9::text[], $10::timestamptz[]) AS open (xid, since)
    WHERE pg_visible_in_snapshot(open.xid::xid8, (SELECT pg_current_snapshot()))
),
{near_queues},
first_run AS MATERIALIZED (
    -- in a range that allows the calculation, as a row may have an infinite time
    SELECT min(greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', r.ready_at))) AS ready_at
    FROM near_queue
    CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
    CROSS JOIN LATERAL (
        SELECT r.ready_at
        FROM scoop.run r
        WHERE r.state = 'ready' AND r.handler = near_queue.handler AND r.topic = near_queue.topic
          AND r.reserved_for = near_queue.lane AND scoop.priority_of(r.context) = level.priority
          AND r.ready_at >= least(
              coalesce(CASE level.priority WHEN 0 THEN near_queue.reached WHEN 1 THEN near_queue.reached_high
                                           ELSE near_queue.reached_low END, '-infinity'),
              (SELECT since FROM late))
          AND r.ready_at <= (SELECT clock_timestamp() + interval '1 day')
          AND NOT scoop.is_suspect(r.tries)
          AND (NOT near_queue.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
        ORDER BY r.ready_at
        LIMIT 1
    ) r
),
suspect AS MATERIALIZED (
    SELECT r.root, r.id, r.topic, r.handler, r.reserved_for, r.ready_at
    FROM scoop.run r
    WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'suspect' AND $5
      AND (r.handler::text, r.topic::text, r.reserved_for) IN (SELECT handler, topic, lane FROM near_queue)
    ORDER BY r.ready_at
    LIMIT 1
),
first_pause AS MATERIALIZED (
    SELECT p.until FROM scoop.pause p WHERE p.until IS NOT NULL ORDER BY p.until LIMIT 1
)
SELECT extract(epoch FROM least(
           (SELECT ready_at FROM first_run),
           (SELECT greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', ready_at)) FROM suspect),
           (SELECT greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', r.give_up_at))
            FROM scoop.run r
            WHERE r.state = 'waiting' AND NOT r.giving_up AND r.give_up_at IS NOT NULL
            ORDER BY r.give_up_at
            LIMIT 1),
           (SELECT greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', until)) FROM first_pause)
       ) - clock_timestamp())::float8 AS seconds,
       ((SELECT until FROM first_pause) <= clock_timestamp()) IS TRUE AS is_pause_over,
       EXISTS (
           SELECT FROM scoop.worker w WHERE w.id <> $3 AND scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
       ) AS is_worker_dead,
       (SELECT w.topology FROM scoop.worker w WHERE w.id = $3) AS topology,
       s.root, s.id AS suspect, s.topic, s.handler, s.reserved_for, s.ready_at
FROM (SELECT) AS always
LEFT JOIN suspect s ON s.ready_at <= clock_timestamp()
