-- The whole record of the hierarchies that are not at rest, hierarchy by hierarchy. One is at rest if each of its
-- runs has ended, none has a request to roll back that it has not begun, and each handler listed for its message has
-- begun. A run whose rollback failed again has another ROLLBACK_FAILED here for each time, and only the newest one has its
-- failure. A failure that is larger than programs write, or has more levels, is replaced. Hierarchies that are not at rest are
-- found in indexes that have no more than ids and names; of the others nothing is read. Each `OFFSET 0` keeps a look-up by an
-- index from becoming part of a join, whose plan would depend on statistics: those may be of tables that were empty then.
-- `type::text` keeps the events of a run from being looked for among all events of their type.
-- Locks: nothing.
WITH RECURSIVE
-- runs as handler and message: begun without an end, rolling back without one, requested to roll back without having
-- begun to, or not undone, in which case an operator may have seen to it since
unended AS MATERIALIZED (
    SELECT coroutine_name, message_id
    FROM scoop.message_event
    WHERE type IN ('SEEN', 'COMMITTED', 'ROLLING_BACK', 'ROLLED_BACK', 'ROLLBACK_FAILED')
    GROUP BY message_id, coroutine_name
    HAVING bool_or(type = 'SEEN') AND NOT bool_or(type IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED'))
        OR bool_or(type = 'ROLLING_BACK') AND NOT bool_or(type = 'ROLLED_BACK')
        OR bool_or(type = 'SEEN') AND NOT bool_or(type = 'ROLLING_BACK')
           AND message_id IN (SELECT message_id FROM scoop.message_event WHERE type = 'ROLLBACK_EMITTED')
),
shared_topic AS MATERIALIZED (
    SELECT topic FROM scoop.handler GROUP BY topic HAVING count(DISTINCT handler) > 1
),
-- messages that some handler may not have begun: that none has, or, where a topic has several, of that topic
undelivered AS MATERIALIZED (
    (SELECT message_id FROM scoop.message_event WHERE type = 'EMITTED'
     EXCEPT
     SELECT message_id FROM scoop.message_event WHERE type = 'SEEN')
    UNION
    SELECT e.message_id
    FROM scoop.message_event e
    CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id OFFSET 0) m
    WHERE e.type = 'EMITTED' AND e.coroutine_name IS NULL AND m.topic IN (SELECT topic FROM shared_topic)
      AND (SELECT count(*) FROM shared_topic) > 0
),
-- from here on each row is looked up by itself
unfinished (root) AS MATERIALIZED (
    SELECT seen.root
    FROM unended u
    CROSS JOIN LATERAL (
        SELECT seen.cooperation_lineage[1] AS root FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.coroutine_name = u.coroutine_name AND seen.message_id = u.message_id
        OFFSET 0
    ) seen
  UNION
    -- what a run has launched is waited for by that run
    SELECT e.root
    FROM undelivered u
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage[1] AS root, e.created_at
        FROM scoop.message_event e
        WHERE e.type = 'EMITTED' AND e.message_id = u.message_id AND e.coroutine_name IS NULL
        OFFSET 0
    ) e
    CROSS JOIN LATERAL (SELECT m.topic FROM scoop.message m WHERE m.id = u.message_id OFFSET 0) m
    LEFT JOIN LATERAL (
        SELECT d.redelivered_at FROM scoop.redelivery d WHERE d.message_id = u.message_id AND d.copy IS NULL
        OFFSET 0
    ) d ON true
    CROSS JOIN LATERAL (SELECT coalesce(d.redelivered_at, e.created_at) AS at) delivered
    CROSS JOIN LATERAL (
        SELECT FROM scoop.handler h
        WHERE h.topic = m.topic AND h.dropped_at IS NULL
          AND h.since <= delivered.at AND coalesce(h.retired_at, 'infinity') > delivered.at
          AND (SELECT count(*) FROM scoop.message_event seen
               WHERE seen.type = 'SEEN' AND seen.coroutine_name = h.handler AND seen.message_id = u.message_id) = 0
        LIMIT 1
    ) h
),
-- what is recorded is recorded under the hierarchy itself or a run
part (root, id) AS (
    SELECT root, root FROM unfinished
  UNION
    SELECT part.root, begun.id
    FROM part
    LEFT JOIN LATERAL (
        -- All that a former execution launched has ended. Only an operator can have had some of it go on.
        SELECT x.began_at FROM scoop.execution x
        WHERE x.run = part.id
          AND (SELECT count(*) FROM scoop.intervention i WHERE i.root = part.root) = 0
        ORDER BY x.number DESC
        LIMIT 1
    ) execution ON true
    CROSS JOIN LATERAL (
        SELECT emitted.message_id FROM scoop.message_event emitted
        WHERE scoop.run_id(emitted.cooperation_lineage) = part.id
          AND emitted.type::text = 'EMITTED'
          AND emitted.created_at > coalesce(execution.began_at, '-infinity')
        OFFSET 0
    ) launched
    CROSS JOIN LATERAL (
        SELECT scoop.run_id(seen.cooperation_lineage) AS id FROM scoop.message_event seen
        WHERE seen.type = 'SEEN' AND seen.message_id = launched.message_id
        OFFSET 0
    ) begun
)
SELECT record.lineage[1] AS root, record.*, (SELECT count(*) FROM unfinished) AS hierarchies,
       -- a program knows the years 1 to 9999
       record.created_at BETWEEN '0001-01-01Z' AND '9999-12-31Z'
           AND coalesce(record.redelivered_at, record.created_at) BETWEEN '0001-01-01Z' AND '9999-12-31Z' AS has_times
FROM (
    SELECT e.lineage, e.message_id, e.type, e.handler, e.topic, e.step, e.jump, e.definition, e.handling,
           scoop.shown_failure(e.exception) AS exception, e.context, e.created_at, e.id, d.redelivered_at, e.wait,
           x.number AS execution, x.message_id AS execution_message, x.suspensions AS execution_suspensions
    FROM part
    LEFT JOIN LATERAL (
        SELECT x.number, x.message_id, x.suspensions, x.began_at,
               (SELECT count(*) FROM scoop.intervention i WHERE i.root = part.root) = 0 AS suffices
        FROM scoop.execution x
        WHERE x.run = part.id
        ORDER BY x.number DESC
        LIMIT 1
    ) newest ON true
    CROSS JOIN LATERAL (
        SELECT e.cooperation_lineage AS lineage, e.message_id, e.type::text AS type, e.coroutine_name AS handler,
               (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id) AS topic, e.step, e.jump, e.definition,
               e.child_failure_handler_iteration AS handling, e.exception, e.context, e.created_at, e.id,
               e.wait
        FROM (
            SELECT own.* FROM scoop.message_event own
            WHERE scoop.run_id(own.cooperation_lineage) = part.id
              AND own.created_at >= CASE WHEN newest.suffices THEN newest.began_at ELSE '-infinity' END
          UNION ALL
            (SELECT seen.* FROM scoop.message_event seen
             WHERE scoop.run_id(seen.cooperation_lineage) = part.id AND seen.type::text = 'SEEN' AND newest.suffices
             ORDER BY seen.created_at
             LIMIT 1)
          UNION ALL
            -- the settlement of the step that went on anew may have come before the mark of the request
            SELECT asked.* FROM scoop.message_event asked
            WHERE asked.type = 'CANCELLATION_REQUESTED' AND asked.cooperation_lineage[1] = part.root
              AND scoop.run_id(asked.cooperation_lineage) = part.id
              AND newest.suffices AND asked.created_at < newest.began_at
        ) e
        OFFSET 0
    ) e
    LEFT JOIN LATERAL (
        SELECT newest.number, newest.message_id, newest.suspensions
        WHERE e.type = 'SUSPENDED' AND e.created_at = newest.began_at
    ) x ON true
    LEFT JOIN LATERAL (
        SELECT d.redelivered_at FROM scoop.redelivery d
        WHERE e.type = 'EMITTED' AND d.message_id = e.message_id AND d.copy IS NULL
        OFFSET 0
    ) d ON true
    UNION ALL
    SELECT e.cooperation_lineage, e.message_id, e.type::text, e.coroutine_name,
           (SELECT m.topic FROM scoop.message m WHERE m.id = e.message_id), f.step, NULL, NULL, f.handler_iteration,
           CASE WHEN f.is_newest THEN scoop.shown_failure(f.exception) END,
           newest.context, f.failed_at, f.id, NULL, NULL, NULL, NULL, NULL
    FROM part
    CROSS JOIN LATERAL (
        SELECT f.*, f.failed_at = max(f.failed_at) OVER () AS is_newest
        FROM scoop.repeated_failure f
        WHERE f.run = part.id
        OFFSET 0
    ) f
    CROSS JOIN LATERAL (
        SELECT e.* FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = f.run AND e.type::text = 'ROLLBACK_FAILED'
        OFFSET 0
    ) e
    CROSS JOIN LATERAL (
        SELECT own.context
        FROM scoop.message_event own
        WHERE scoop.run_id(own.cooperation_lineage) = f.run
          AND own.message_id = e.message_id AND own.coroutine_name = e.coroutine_name
          AND own.created_at < f.failed_at
        ORDER BY own.created_at DESC
        LIMIT 1
    ) newest
) record
ORDER BY lineage[1], created_at, id
