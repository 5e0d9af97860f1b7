-- All that is on record, hierarchy by hierarchy. Whoever could not be undone again has another ROLLBACK_FAILED here.
-- Locks: nothing.
SELECT * FROM (
    SELECT e.cooperation_lineage AS lineage, e.message_id, e.type::text AS type, e.coroutine_name AS handler,
           m.topic, e.step, e.jump, e.definition, e.child_failure_handler_iteration AS handling, e.exception, e.context,
           e.created_at, e.id, d.redelivered_at
    FROM scoop.message_event e
    JOIN scoop.message m ON m.id = e.message_id
    LEFT JOIN scoop.redelivery d ON d.message_id = e.message_id AND d.copy IS NULL AND e.type = 'EMITTED'
    UNION ALL
    SELECT e.cooperation_lineage, e.message_id, e.type::text, e.coroutine_name,
           m.topic, f.step, NULL, NULL, f.handling, f.exception, newest.context,
           f.failed_at, e.id, NULL
    FROM scoop.repeated_failure f
    JOIN scoop.message_event e
        ON e.cooperation_lineage[cardinality(e.cooperation_lineage)] = f.run AND e.type = 'ROLLBACK_FAILED'
    JOIN scoop.message m ON m.id = e.message_id
    CROSS JOIN LATERAL (
        SELECT own.context
        FROM scoop.message_event own
        WHERE own.cooperation_lineage[cardinality(own.cooperation_lineage)] = f.run
          AND own.message_id = e.message_id AND own.coroutine_name = e.coroutine_name
          AND own.created_at < f.failed_at
        ORDER BY own.created_at DESC
        LIMIT 1
    ) newest
) record
ORDER BY lineage[1], created_at, id
