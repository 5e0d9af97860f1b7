-- How many runs of something have to finish before its drain is over? Those that have begun, and those that a pause for new runs
-- only would let pass. Each state and handler is read by the index of lists; of ready runs, all that are new are read, too.
-- Locks: nothing.
-- $1 kind and $2 name of what is drained, $3 the maximum of the count
WITH covered AS MATERIALIZED (
    SELECT l.state, l.handler FROM scoop.listed_handler l
    WHERE $1::text = 'everything' OR l.handler::text IN (
        SELECT $2::text
        WHERE $1::text = 'handler'
        UNION
        SELECT names.name
        FROM scoop.handler h
        CROSS JOIN LATERAL unnest(h.handler::text || h.was) AS names (name)
        WHERE h.was IS NOT NULL AND $1::text = 'handler' AND $2::text = ANY (h.handler::text || h.was)
        UNION
        SELECT h.handler::text FROM scoop.handler h WHERE $1::text = 'topic' AND h.topic = $2::text
    )
)
SELECT count(*) FROM (
    SELECT
    FROM covered c
    CROSS JOIN LATERAL (
        SELECT FROM scoop.run r
        WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
          AND r.state = c.state AND r.handler = c.handler AND ($1::text <> 'topic' OR r.topic::text = $2::text)
          AND NOT scoop.is_new(r.began_at, r.rollback_requested, r.giving_up, r.root, r.lineage)
        ORDER BY r.id
        LIMIT $3
    ) r
    LIMIT $3
) left_runs
