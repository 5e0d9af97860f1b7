-- Returns whether the runs of this message can be rolled back: how many handled it, how many of them have
-- committed, whether their rollback was requested before, whether a run of it, above it or below it is unfinished, apart from failed ones;
-- and whether the rollback of a run of it, or of one below, has failed.
-- Locks: nothing.
-- $1 root, $2 message
WITH handled AS (
    SELECT s.cooperation_lineage AS lineage
    FROM scoop.message_event s
    WHERE s.type = 'SEEN' AND s.message_id = $2
),
-- Read as far as a condition below needs it. Each run of the working set is looked up in the ids of those that handled the
-- message, and not compared with each of these: a message may have many.
related AS MATERIALIZED (
    SELECT r.state, r.message_id = $2 AS handled_it, below.is_so AS is_below
    FROM scoop.run r
    CROSS JOIN (SELECT array_agg(DISTINCT cardinality(h.lineage)) AS levels FROM handled h) handled_at
    -- its id has the same place in this lineage; `IS TRUE`, since the planner may turn a mere IN into a join, whose table is filled anew
    -- for each run
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT FROM unnest(handled_at.levels) level
            WHERE (r.lineage[level] IN (SELECT scoop.run_id(h.lineage) FROM handled h)) IS TRUE
        ) AS is_so
        OFFSET 0
    ) below
    WHERE r.root = $1
      AND (r.message_id = $2 OR below.is_so OR r.id IN (SELECT DISTINCT unnest(h.lineage) FROM handled h))
)
SELECT (SELECT count(*) FROM handled) AS handled,
       (SELECT count(*) FROM handled h
        CROSS JOIN LATERAL (
            SELECT FROM (SELECT) AS always
            LEFT JOIN scoop.ended_run e ON e.root = $1 AND e.id = scoop.run_id(h.lineage)
            WHERE CASE WHEN e.id IS NULL THEN NOT scoop.is_in_run($1, scoop.run_id(h.lineage)) ELSE e.outcome = 'committed' END
            OFFSET 0
        ) ended) AS committed,
       EXISTS (SELECT FROM scoop.message_event e WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = $2)
           AS rollback_requested,
       EXISTS (SELECT FROM related r WHERE r.state <> 'failed') AS unfinished,
       EXISTS (SELECT FROM related r WHERE r.state = 'failed' AND r.handled_it) AS failed_itself,
       EXISTS (SELECT FROM related r WHERE r.state = 'failed' AND (r.handled_it OR r.is_below)) AS failed
