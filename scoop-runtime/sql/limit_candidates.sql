-- The due runs of a saga in the order of their queue times, with the payloads from which their keys come. It follows
-- limit_lock.sql in its transaction, so that no other claim takes them. Payloads that are together larger than $6 are left
-- out, apart from the first; large ones are compared as they are stored, which reads nothing of them. A queue is read from the known
-- position, as in run_claim.sql. Each row says when it has looked, its snapshot and the id of its transaction; so there is one also
-- without due runs.
-- Locks: the rows of run, without those that other transactions have locked: one of these must not hold up other keys.
-- $1 topics, $2 handlers and $3 the definitions that their runs are reserved for (triples), $4 how many, $5 which runs, null
-- for all but suspects, $6 how many bytes, $7 for each queue the position, null where all of it is to be looked at;
-- the same $8 of the runs with high and $9 of those with low priority; $10 the transactions in progress at the last look, and $11 since
-- when runs of each may be ready, null if that is unknown; $12 for each queue whether its new runs are paused
WITH late AS MATERIALIZED (
    SELECT min(coalesce(open.since, '-infinity')) AS since
    FROM unnest($10::text[], $11::timestamptz[]) AS open (xid, since)
    WHERE pg_visible_in_snapshot(open.xid::xid8, (SELECT pg_current_snapshot()))
)
SELECT look.looked_at, look.snapshot, look.own_xid, due.root, due.id, due.topic, due.handler, due.lane, due.priority,
       -- in a range that programs can read
       CASE WHEN due.ready_at > '0001-01-01 00:00+00' THEN due.ready_at END AS ready_at, due.queue_time,
       due.held_key, due.ends_unbegun,
       coalesce(due.bytes_before, 0) >= $6 AS is_left_out,
       CASE WHEN coalesce(due.bytes_before, 0) < $6 THEN due.payload END AS payload
FROM (SELECT now() AS looked_at, pg_current_snapshot()::text AS snapshot, pg_current_xact_id()::text AS own_xid) look
LEFT JOIN (
    SELECT due.*, m.payload,
           sum(pg_column_size(m.payload)) OVER (
               ORDER BY due.queue_time, due.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
    FROM (
        SELECT r.root, r.id, r.topic, r.handler, own.lane, level.priority, r.ready_at, r.held_key, r.ends_unbegun,
               scoop.queue_time(r.ready_at, level.priority) AS queue_time, r.message_id
        FROM unnest($1::text[], $2::text[], $3::int[], $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $12::boolean[])
            AS own (topic, handler, lane, reached, reached_high, reached_low, begun_only)
        CROSS JOIN (VALUES (1), (0), (-1)) AS level (priority)
        CROSS JOIN LATERAL (
            SELECT r.root, r.id, r.topic, r.handler, r.ready_at, coalesce((r.newest_execution).message_id, r.message_id) AS message_id,
                   scoop.held_key(r.state, r.limit_key, r.parked_since)::text AS held_key,
                   r.began_at IS NULL AND (r.rollback_requested OR scoop.has_to_give_up(r.giving_up, r.give_up_at, clock_timestamp()))
                       AS ends_unbegun
            FROM scoop.run r
            WHERE r.state = 'ready' AND r.handler = own.handler AND r.topic = own.topic AND r.reserved_for = own.lane
              AND scoop.priority_of(r.context) = level.priority
              AND r.ready_at >= least(
                  coalesce(CASE level.priority WHEN 0 THEN own.reached WHEN 1 THEN own.reached_high
                                               ELSE own.reached_low END, '-infinity'),
                  (SELECT since FROM late))
              AND r.ready_at <= (SELECT clock_timestamp())
              AND CASE WHEN $5::uuid[] IS NULL THEN NOT scoop.is_suspect(r.tries)
                       ELSE r.id = ANY ($5) END
              AND (NOT own.begun_only OR NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage))
            ORDER BY r.ready_at
            LIMIT $4
            FOR UPDATE SKIP LOCKED
        ) r
        ORDER BY queue_time, r.id
        LIMIT $4
    ) due
    LEFT JOIN LATERAL (SELECT m.payload FROM scoop.message m WHERE m.id = due.message_id OFFSET 0) m ON true
) due ON true
ORDER BY due.queue_time, due.id
