-- Returns keys of the entities of a name that have events, in their order; those without a row, too. Goes through the index of
-- events from one key to the next.
-- Locks: nothing.
-- $1 name, $2 the key to continue after, $3 the number of keys at most
WITH RECURSIVE with_events (key, nth) AS (
    (SELECT e.key, 1::bigint FROM scoop.entity_event e
     WHERE e.name = $1::text AND e.key > $2::text
     ORDER BY e.key LIMIT 1)
    UNION ALL
    SELECT next.key, w.nth + 1
    FROM with_events w
    CROSS JOIN LATERAL (
        SELECT e.key FROM scoop.entity_event e
        WHERE e.name = $1::text AND e.key > w.key
        ORDER BY e.key LIMIT 1
    ) next
    WHERE w.nth < $3
)
SELECT k.key
FROM (
    SELECT w.key FROM with_events w
    UNION
    (SELECT e.key FROM scoop.entity e
     WHERE e.name = $1::text AND e.key > $2::text AND e.version <> 0
     ORDER BY e.key LIMIT $3)
) k
ORDER BY k.key
LIMIT $3
