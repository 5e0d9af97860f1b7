-- Lists the interventions in these runs of a hierarchy, oldest first. Of each run it lists the first and the last ones, and in
-- each row the number of those between them.
-- Locks: nothing.
-- $1 root, $2 the runs; null for all. $3 one of them, of which so many are read as asked for, and of the others one and one;
-- null for all. $4 how many from the beginning of each run and how many from its end; null for all. $5 up to which number the
-- others are counted
WITH RECURSIVE intervened AS (
    -- from each run to the next one: the hierarchy may have many interventions in few runs, and few in many runs
    (SELECT i.run FROM scoop.intervention i WHERE $2::uuid[] IS NULL AND i.root = $1 ORDER BY i.run LIMIT 1)
    UNION ALL
    SELECT next.run
    FROM intervened
    CROSS JOIN LATERAL (
        SELECT i.run
        FROM scoop.intervention i
        WHERE i.root = $1 AND i.run > intervened.run
        ORDER BY i.run
        LIMIT 1
    ) next
)
SELECT i.run, i.handler, i.step, i.kind, left(i.note, 10000) AS note, left(i.source, 10000) AS source, i.requested_at,
       CASE WHEN counted.found > 2 * n.ends THEN counted.found - 2 * n.ends ELSE 0 END AS left_out
FROM (
    SELECT asked.run, CASE WHEN asked.run <> $3::uuid AND $4::int > 1 THEN 1 ELSE $4::int END::bigint AS ends
    FROM (
        SELECT intervened.run FROM intervened
        UNION ALL
        SELECT listed.run
        FROM unnest($2::uuid[]) AS listed (run)
        -- looked up once: mostly there are none
        WHERE EXISTS (SELECT FROM scoop.intervention i WHERE i.root = $1)
    ) asked
) n
CROSS JOIN LATERAL (
    SELECT count(*) AS found
    FROM (
        -- in the order of the table, not of time, so that a page of the table is read once
        SELECT FROM scoop.intervention i
        WHERE n.ends IS NOT NULL AND i.root = $1 AND i.run = n.run
        LIMIT 2 * n.ends + $5::bigint
    ) i
) counted
CROSS JOIN LATERAL (
    (
        SELECT i.*
        FROM scoop.intervention i
        WHERE i.run = n.run
        ORDER BY i.requested_at, i.id
        LIMIT n.ends
    )
    UNION ALL
    (
        SELECT i.*
        FROM scoop.intervention i
        WHERE i.run = n.run
        ORDER BY i.requested_at DESC, i.id DESC
        LIMIT CASE WHEN counted.found > n.ends THEN least(counted.found - n.ends, n.ends) ELSE 0 END
    )
) i
WHERE n.ends IS NULL OR counted.found > 0
ORDER BY i.requested_at, i.id
