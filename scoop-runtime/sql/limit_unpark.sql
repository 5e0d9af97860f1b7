-- Returns parked runs to their queues, with the time at which they were ready: of each of these keys as many as it has free places,
-- those first that were ready first. It follows limit_lock.sql in its transaction.
-- Locks: the rows of these runs, without those that other transactions have locked.
-- $1 handlers, $2 keys, $3 how many runs of a key are executed at once
WITH running AS MATERIALIZED (
    SELECT r.limit_key::text AS key, count(*) AS count
    FROM scoop.run r
    WHERE r.state = 'running' AND r.handler = ANY ($1::text[]) AND r.id >= '00000000-0000-0000-0000-000000000000'
      AND r.limit_key = ANY ($2::text[])
    GROUP BY r.limit_key
),
free AS MATERIALIZED (
    SELECT asked.key, greatest($3 - coalesce(running.count, 0), 0) AS places
    FROM unnest($2::text[]) AS asked (key)
    LEFT JOIN running ON running.key = asked.key
),
next AS MATERIALIZED (
    SELECT oldest.ctid
    FROM free
    CROSS JOIN LATERAL (
        SELECT r.ctid
        FROM unnest($1::text[]) AS own (handler)
        CROSS JOIN LATERAL (
            SELECT r.ctid, r.parked_since FROM scoop.run r
            WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = own.handler AND r.limit_key = free.key
            ORDER BY r.parked_since
            LIMIT free.places
            FOR UPDATE SKIP LOCKED
        ) r
        ORDER BY r.parked_since
        LIMIT free.places
    ) oldest
)
UPDATE scoop.run r
SET ready_at = r.parked_since, parked_since = NULL
WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM next))
RETURNING r.handler::text
