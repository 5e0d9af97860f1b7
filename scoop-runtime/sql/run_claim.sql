-- Claims ready runs for a worker and raises their epochs. In turns: the first run of each handler comes before the
-- second of any, and the runs that the worker executes already count, so that the backlog of one handler does not block
-- another; within a turn the handler comes first that has the run that has been ready longest. Its runs come in the order
-- of their queue times, so that priority decides among the runs of one handler only. The first claim of a run records its
-- beginning: SEEN, or ROLLING_BACK if its rollback was requested.
-- Locks: the claimed rows of run, without those that other claims have locked; and the row of this worker, so that a
-- reaper that frees the runs of this worker sees this claim. A worker without a row claims nothing. Claimed runs leave
-- dead entries at the beginning of the index until it is vacuumed, so a queue is read from the known position. Runs of transactions
-- that have ended since may be older: if there are any, all queues are read from the earliest time of these. Levels of priority other
-- than normal are read only for a suspect, and if any other due run has one, which is looked for from their earliest position on.
-- Each row says what the claim has seen, too, for the positions of the next one: its time, its snapshot, its id, and since when the first run
-- that it has left in each queue is ready. So a claim that takes no run returns a row, unless it was by an outdated topology.
-- $1 worker, $2 its identifier in events, $3 topics and $4 handlers (pairs), $5 how many, $6 an object: how many runs
-- the worker executes, by handler, $7 ids for as many events: cheaper to make in a program than in the server, $8 for
-- each pair the position, null where all of it is to be looked at, $9 for each pair the definition
-- that its runs are reserved for, 0 for those that are not, $10 the topology that the pairs follow from: a worker that
-- does not know of another process claims nothing, $11 which runs may be taken, null for all but suspects; as $8, $12 of
-- the runs with high and $13 of those with low priority; $14 the transactions in progress at the last look, and $15 since when runs of
-- each may be ready, null if that is unknown; $16 for each pair whether its new runs are paused
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $1 AND topology = $10 FOR KEY SHARE
),
late AS MATERIALIZED (
    SELECT min(coalesce(open.since, '-infinity')) AS since
    FROM unnest($14::text[], $15::timestamptz[]) AS open (xid, since)
    WHERE pg_visible_in_snapshot(open.xid::xid8, (SELECT pg_current_snapshot()))
),
-- candidates with their turns: more than are claimed, since other claims may lock the first ones
queue AS MATERIALIZED (
    SELECT r.ctid, r.since, r.place + coalesce(($6::jsonb ->> own.handler)::bigint, 0) AS turn, own.nth, r.priority, r.ready_at
    FROM unnest($3::text[], $4::text[], $8::timestamptz[], $9::int[], $12::timestamptz[], $13::timestamptz[], $16::boolean[])
        WITH ORDINALITY AS own (topic, handler, reached, lane, reached_high, reached_low, begun_only, nth)
    CROSS JOIN LATERAL (
        SELECT r.ctid, level.priority, r.ready_at, min(r.ready_at) OVER queue AS since, row_number() OVER queue AS place
        FROM unnest(CASE WHEN $11::uuid[] IS NOT NULL OR EXISTS (
                               SELECT FROM scoop.run r
                               WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'prioritized'
                                 AND r.ready_at >= least(
                                     (SELECT min(coalesce(known.reached, '-infinity'))
                                      FROM unnest($12::timestamptz[] || $13::timestamptz[]) AS known (reached)),
                                     (SELECT since FROM late))
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
                  (SELECT since FROM late))
              AND r.ready_at <= (SELECT clock_timestamp())
              AND CASE WHEN $11::uuid[] IS NULL THEN NOT scoop.is_suspect(r.tries)
                       ELSE r.id = ANY ($11) END
              AND (NOT own.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
            ORDER BY r.ready_at
            LIMIT least($5 + 20, 1 + 10000 / cardinality($4::text[]))
        ) r
        WINDOW queue AS (ORDER BY r.queue_time ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        -- all of them: it makes the planner take them for few, and look each up
        LIMIT 3 * least($5 + 20, 1 + 10000 / cardinality($4::text[]))
    ) r
    WHERE EXISTS (SELECT FROM own_worker)
),
{taken},
unclaimed AS (
    SELECT q.nth::int AS nth, q.priority,
           -- in a range that programs can read
           CASE WHEN min(q.ready_at) > '0001-01-01 00:00+00' THEN min(q.ready_at) END AS since
    FROM queue q
    WHERE q.ctid NOT IN (SELECT t.ctid FROM taken t)
    GROUP BY q.nth, q.priority
),
look AS (
    SELECT now() AS looked_at, pg_current_snapshot()::text AS snapshot, pg_current_xact_id()::text AS own_xid, u.*
    FROM (
        SELECT array_agg(u.nth) AS left_queues, array_agg(u.priority) AS left_levels, array_agg(u.since) AS left_since
        FROM unclaimed u
    ) u
    WHERE EXISTS (SELECT FROM own_worker)
)
SELECT l.*, c.*
FROM look l
LEFT JOIN result c ON true
ORDER BY c.ready_at
