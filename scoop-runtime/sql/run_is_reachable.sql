-- Does a chain of launches lead from the root of a hierarchy to this message? Goes up from the message: to the run that
-- launched it, and to the message of that. A gap in the record ends the chain.
-- Locks: nothing.
-- $1 root, $2 the message
WITH RECURSIVE above AS (
    SELECT e.cooperation_lineage AS lineage, e.coroutine_name AS handler
    FROM scoop.message_event e
    WHERE e.type = 'EMITTED' AND e.message_id = $2
  -- rows of another program may say that a message led to itself
  UNION
    SELECT emitted.cooperation_lineage, emitted.coroutine_name
    FROM above
    CROSS JOIN LATERAL (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = scoop.run_id(above.lineage)
          -- as a text: otherwise the planner may read the index of all such events
          AND e.type::text = 'SEEN' AND e.coroutine_name = above.handler
        ORDER BY e.created_at
        LIMIT 1
    ) seen
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage, e.coroutine_name FROM scoop.message_event e
        WHERE e.type = 'EMITTED' AND e.message_id = seen.message_id
        OFFSET 0
    ) emitted
)
SELECT EXISTS (SELECT FROM above WHERE cardinality(lineage) = 1 AND lineage[1] = $1)
