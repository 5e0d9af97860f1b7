-- Returns in how many seconds the next run of this worker is ready, the next waiting run is overdue, or a pause is over;
-- negative if that is past, null if there is none. Also whether a pause is over; and whether a worker is dead, which costs next to nothing where all live; the
-- current topology; and the suspect that has been ready longest, with its queue.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 topics, $2 handlers and $4 the definitions that their runs are reserved for (triples), $3 the asking worker, $5
-- whether it may claim a suspect, $6 for each queue how far it has been worked off, null where all of it is to be looked at; the
-- same $7 of the runs with high and $8 of those with low priority
--
-- Of many handlers only those are looked at that have something, from one to the next as handler_list_ready.sql does,
-- but from the beginning of each queue on: this is asked about once a second. Of few handlers, a queue is read from the known position,
-- as in run_claim.sql.
WITH RECURSIVE listed (handler, topic, lane) AS (
    (SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
     WHERE r.state = 'ready' AND cardinality($2::text[]) > 20
     ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1)
    UNION ALL
    SELECT next.handler, next.topic, next.reserved_for
    FROM listed l
    CROSS JOIN LATERAL (
        SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
        WHERE r.state = 'ready' AND (r.handler, r.topic, r.reserved_for) > (l.handler, l.topic, l.lane)
        ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1
    ) next
),
own_handlers (handler, topic, lane, reached, reached_high, reached_low) AS (
    SELECT handler, topic, lane, reached, reached_high, reached_low
    FROM unnest($2::text[], $1::text[], $4::int[], $6::timestamptz[], $7::timestamptz[], $8::timestamptz[])
        AS few (handler, topic, lane, reached, reached_high, reached_low)
    WHERE cardinality($2::text[]) <= 20
    UNION ALL
    SELECT l.handler, l.topic, l.lane, NULL, NULL, NULL FROM listed l
    WHERE CASE WHEN (l.handler::text, l.topic::text, l.lane) IN (
        SELECT handler, topic, lane FROM unnest($2::text[], $1::text[], $4::int[]) AS many (handler, topic, lane)
    ) THEN true END
),
suspect AS MATERIALIZED (
    SELECT r.root, r.id, r.topic, r.handler, r.reserved_for, r.ready_at
    FROM scoop.run r
    WHERE r.state = 'ready' AND scoop.is_suspect(r.doubts, r.attempts, r.retries) AND $5
      AND (r.handler::text, r.topic::text, r.reserved_for) IN (SELECT handler, topic, lane FROM own_handlers)
    ORDER BY r.ready_at
    LIMIT 1
),
first_pause AS MATERIALIZED (
    SELECT p.until FROM scoop.pause p WHERE p.until IS NOT NULL ORDER BY p.until LIMIT 1
)
SELECT extract(epoch FROM least(
           -- in a range that allows the calculation, as a row may have an infinite time
           (SELECT min(greatest('0001-01-01 00:00+00', least('9999-12-31 00:00+00', r.ready_at)))
            FROM own_handlers
            CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
            CROSS JOIN LATERAL (
                SELECT r.ready_at
                FROM scoop.run r
                WHERE r.state = 'ready' AND r.handler = own_handlers.handler AND r.topic = own_handlers.topic
                  AND r.reserved_for = own_handlers.lane AND scoop.priority_of(r.context) = level.priority
                  AND r.ready_at >= least(
                      coalesce(CASE level.priority WHEN 0 THEN own_handlers.reached WHEN 1 THEN own_handlers.reached_high
                                                   ELSE own_handlers.reached_low END, '-infinity'),
                      (SELECT clock_timestamp() - interval '1 second'))
                  AND NOT scoop.is_suspect(r.doubts, r.attempts, r.retries)
                ORDER BY r.ready_at
                LIMIT 1
            ) r),
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
