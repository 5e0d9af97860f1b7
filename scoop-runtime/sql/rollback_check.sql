-- Returns whether the runs of this message can be rolled back: how many handled it, how many of them are not rolled
-- back, whether their rollback was requested before, whether a run of it, above it or below it is unfinished, whether these only
-- wait for an operator, and whether the rollback of one of them, or of a descendant, has failed before.
-- Locks: nothing.
-- $1 root, $2 message
WITH RECURSIVE handled AS (
    SELECT s.cooperation_lineage AS lineage, s.message_id, s.coroutine_name AS handler
    FROM scoop.message_event s
    WHERE s.type = 'SEEN' AND s.message_id = $2
),
below AS (
    SELECT *, true AS handled_it FROM handled
    -- without duplicates, so that it ends at forged events that lead in a circle
  UNION
    SELECT child.cooperation_lineage, child.message_id, child.coroutine_name, false
    FROM below
    -- what a former execution launched is not undone
    LEFT JOIN LATERAL (
        SELECT x.began_at FROM scoop.execution x WHERE x.run = scoop.run_id(below.lineage)
        ORDER BY x.number DESC
        LIMIT 1
    ) execution ON true
    -- one run at a time: otherwise the planner may read the events of all runs if one has most of them
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(below.lineage)
          -- as a text: otherwise the planner may read the index of all such events
          AND e.type::text = 'EMITTED' AND e.coroutine_name = below.handler
          AND e.created_at > coalesce(execution.began_at, '-infinity')
        OFFSET 0
    ) emitted
    CROSS JOIN LATERAL (
        SELECT seen.cooperation_lineage, seen.message_id, seen.coroutine_name FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = emitted.message_id
        OFFSET 0
    ) child
),
failed AS (
    SELECT b.handled_it
    FROM below b
    CROSS JOIN LATERAL (
        SELECT FROM scoop.message_event e
        WHERE e.type = 'ROLLBACK_FAILED' AND e.coroutine_name = b.handler AND e.message_id = b.message_id
        OFFSET 0
    ) e
    WHERE (
        SELECT mended.id FROM scoop.message_event mended
        WHERE mended.type = 'ROLLED_BACK' AND mended.coroutine_name = b.handler
          AND mended.message_id = b.message_id
    ) IS NULL
),
-- Read as far as a condition below needs it. Each run of the working set is looked up in the ids of those that handled the
-- message, and not compared with each of these: a message may have many.
related AS MATERIALIZED (
    SELECT r.state, r.awaits_operator, r.rollback_failed_before
    FROM scoop.run r
    CROSS JOIN (SELECT array_agg(DISTINCT cardinality(h.lineage)) AS levels FROM handled h) handled_at
    WHERE r.root = $1 AND (
        r.message_id = $2
        -- one of them, or above one
        OR r.id IN (SELECT DISTINCT unnest(h.lineage) FROM handled h)
        -- below one: its id has the same place in this lineage; `IS TRUE`, since the planner may turn a mere IN into a join, whose
        -- table is filled anew for each run
        OR EXISTS (
            SELECT FROM unnest(handled_at.levels) level
            WHERE (r.lineage[level] IN (SELECT scoop.run_id(h.lineage) FROM handled h)) IS TRUE
        )
    )
)
SELECT (SELECT count(*) FROM handled) AS handled,
       (SELECT count(*) FROM handled h
        WHERE NOT EXISTS (
            SELECT FROM scoop.message_event e
            WHERE e.type = 'ROLLING_BACK' AND e.message_id = h.message_id AND e.coroutine_name = h.handler
            OFFSET 0
        )) AS done,
       EXISTS (SELECT FROM scoop.message_event e WHERE e.type = 'ROLLBACK_EMITTED' AND e.message_id = $2)
           AS rollback_requested,
       EXISTS (SELECT FROM related) AS unfinished,
       NOT EXISTS (
           SELECT FROM related r WHERE scoop.goes_on(r.state, r.rollback_failed_before, r.awaits_operator)
       ) AND EXISTS (
           SELECT FROM related r WHERE r.awaits_operator
       ) AS only_awaits_operator,
       coalesce((SELECT bool_or(handled_it) FROM failed), false) AS failed_itself,
       EXISTS (SELECT FROM failed) AS failed
