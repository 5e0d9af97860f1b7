-- Lists the names of entities. Goes through the index of entities from one name to the next.
-- Locks: nothing.
-- $1 how many at most
WITH RECURSIVE named (name, nth) AS (
    (SELECT e.name, 1::bigint FROM scoop.entity e WHERE e.name > '' ORDER BY e.name LIMIT 1)
    UNION ALL
    SELECT next.name, n.nth + 1
    FROM named n
    CROSS JOIN LATERAL (
        SELECT e.name FROM scoop.entity e WHERE e.name > n.name ORDER BY e.name LIMIT 1
    ) next
    WHERE n.nth < $1
)
SELECT name::text FROM named ORDER BY nth
