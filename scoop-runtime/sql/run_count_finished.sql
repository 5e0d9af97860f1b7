-- How many runs have committed or rolled back since a time, by handler? Goes through the index of ends from one handler of each
-- kind to the next, and counts the entries since then. A row without a handler says that some were left out. Failed rollbacks are
-- counted until an operator has settled them: see rollback_failure_count.sql.
-- Locks: nothing.
-- $1 since when, $2 the maximum of a count, nothing for none, $3 of how many handlers of each kind, nothing for all
WITH listed AS MATERIALIZED (
    SELECT k.type, h.handler
    FROM unnest('{COMMITTED,ROLLED_BACK}'::scoop.message_event_type[]) AS k (type)
    CROSS JOIN LATERAL (
{ended_handlers}
        LIMIT $3
    ) h
)
SELECT l.handler::text, l.type::text, ended.count
FROM listed l
CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM (
        SELECT FROM scoop.run_end e
        WHERE e.type = l.type AND e.coroutine_name = l.handler AND e.created_at >= $1
        LIMIT $2
    ) e
) ended
WHERE ended.count > 0
UNION ALL
SELECT NULL, NULL, 0
WHERE EXISTS (SELECT FROM listed l GROUP BY l.type HAVING count(*) >= $3)
ORDER BY 1, 2
