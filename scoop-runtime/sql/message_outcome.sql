-- What became of a message? One row for each run that handled it, finished or not.
-- Locks: nothing.
-- $1 the message
SELECT seen.coroutine_name AS handler,
       ended.type::text AS type,
       ended.exception,
       turned.exception AS cause
FROM scoop.message_event seen
LEFT JOIN LATERAL (
    SELECT e.type, e.exception
    FROM scoop.message_event e
    WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)]
            = seen.cooperation_lineage[cardinality(seen.cooperation_lineage)]
      AND e.message_id = seen.message_id
      AND e.type IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_FAILED')
    ORDER BY e.created_at DESC
    LIMIT 1
) ended ON true
LEFT JOIN scoop.message_event turned
    ON turned.type = 'ROLLING_BACK' AND turned.coroutine_name = seen.coroutine_name
   AND turned.message_id = seen.message_id
WHERE seen.type = 'SEEN' AND seen.message_id = $1
ORDER BY seen.created_at
