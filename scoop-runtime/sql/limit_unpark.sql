-- Puts parked runs back into their queues, with the time at which they were ready: of each of these keys so many, in the order of
-- their queue times. Only runs of the queues from which the claimer claims: another one, of a topic that is paused for example, would
-- take the place of its key and leave it unused. It follows limit_lock.sql in its transaction. Returns the keys, with how many
-- runs of each, since when the first of them is ready, and the queue time of the last one.
-- Locks: the rows of these runs, without those that other transactions have locked.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples), $4 keys, $5 how many runs of each, and $6
-- from which queue time on, null for all of it; $7 for each queue whether its new runs are paused
WITH next AS MATERIALIZED (
    SELECT first.ctid, first.id, free.key
    FROM unnest($4::text[], $5::bigint[], $6::timestamptz[]) AS free (key, runs_max, since)
    CROSS JOIN LATERAL (
        SELECT r.ctid, r.id
        FROM unnest($1::text[], $2::text[], $3::int[], $7::boolean[]) AS own (topic, handler, lane, begun_only)
        CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.id, r.parked_since FROM scoop.run r
            WHERE r.state::text = 'ready' AND r.parked_since IS NOT NULL AND r.handler = own.handler AND r.topic = own.topic
              AND r.reserved_for = own.lane AND r.limit_key = free.key
              AND scoop.priority_of(r.context) = level.priority
              AND r.parked_since >= CASE WHEN free.since IS NULL THEN '-infinity' ELSE scoop.queue_time(free.since, -level.priority) END
              AND (NOT own.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
            ORDER BY r.parked_since
            LIMIT free.runs_max
            FOR UPDATE SKIP LOCKED
        ) r
        ORDER BY scoop.queue_time(r.parked_since, level.priority)
        LIMIT free.runs_max
    ) first
),
unparked AS (
    UPDATE scoop.run r
    SET ready_at = least(r.parked_since, clock_timestamp()), parked_since = NULL, limit_key = NULL
    WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM next))
    RETURNING r.id, r.ready_at, scoop.queue_time(r.ready_at, scoop.priority_of(r.context)) AS queue_time
)
SELECT next.key, count(*) AS runs,
       -- in a range that programs can read
       greatest('0001-01-01 00:00+00', min(r.ready_at)) AS since,
       greatest('0001-01-01 00:00+00', max(r.queue_time)) AS last
FROM unparked r
JOIN next ON next.id = r.id
GROUP BY next.key
