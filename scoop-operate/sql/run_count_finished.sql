-- How many runs have committed or rolled back since a time, by handler? Goes through the index of ends from one handler of each
-- outcome to the next, and counts the entries since then. A row without a handler says that some were left out.
-- Locks: nothing.
-- $1 since when, $2 the maximum of a count, nothing for none, $3 of how many handlers of each outcome, nothing for all
WITH listed AS MATERIALIZED (
    SELECT k.outcome, h.handler
    FROM unnest('{committed,rolled_back}'::scoop.run_outcome[]) AS k (outcome)
    CROSS JOIN LATERAL (
{ended_handlers}
        LIMIT $3
    ) h
)
SELECT l.handler::text, l.outcome::text, ended.count
FROM listed l
CROSS JOIN LATERAL (
    SELECT count(*) AS count FROM (
        SELECT FROM scoop.ended_run r
        WHERE r.outcome = l.outcome AND r.handler = l.handler AND r.ended_at >= $1
        LIMIT $2
    ) r
) ended
WHERE ended.count > 0
UNION ALL
SELECT NULL, NULL, 0
WHERE EXISTS (SELECT FROM listed l GROUP BY l.outcome HAVING count(*) >= $3)
ORDER BY 1, 2
