-- Lists the interventions in these runs of a hierarchy, oldest first: the first and the last ones of each run, and in each row the
-- number of those between them.
-- Locks: nothing.
-- $1 root, $2 the runs. $3 one of them, of which so many are read as asked for, and of the others one and one; null for all.
-- $4 how many from the beginning of each run and how many from its end; null for all. $5 up to which number the others are
-- counted
SELECT i.run, i.handler, i.step, i.kind, i.note, i.source, i.requested_at, i.left_out
FROM (
    SELECT asked.run, CASE WHEN asked.run <> $3::uuid AND $4::int > 1 THEN 1 ELSE $4::int END AS ends
    FROM unnest($2::uuid[]) AS asked (run)
    -- looked up once: mostly there are none
    WHERE EXISTS (SELECT FROM scoop.intervention i WHERE i.root = $1)
) n
CROSS JOIN LATERAL (
    WITH first AS MATERIALIZED (
        SELECT i.*
        FROM scoop.intervention i
        WHERE i.run = n.run
        ORDER BY i.requested_at, i.id
        LIMIT n.ends
    ),
    -- the end of the first ones
    after AS MATERIALIZED (
        SELECT f.requested_at, f.id
        FROM first f
        WHERE n.ends IS NOT NULL
        ORDER BY f.requested_at DESC, f.id DESC
        LIMIT 1
    ),
    last AS MATERIALIZED (
        SELECT i.*
        FROM after
        CROSS JOIN LATERAL (
            SELECT i.*
            FROM scoop.intervention i
            WHERE i.run = n.run AND (i.requested_at, i.id) > (after.requested_at, after.id)
            ORDER BY i.requested_at DESC, i.id DESC
            LIMIT n.ends
        ) i
    ),
    before AS MATERIALIZED (
        SELECT l.requested_at, l.id FROM last l ORDER BY l.requested_at, l.id LIMIT 1
    ),
    between_them AS MATERIALIZED (
        SELECT count(*) AS left_out
        FROM (
            SELECT
            FROM after
            CROSS JOIN before
            CROSS JOIN LATERAL (
                SELECT FROM scoop.intervention i
                WHERE i.run = n.run AND (i.requested_at, i.id) > (after.requested_at, after.id)
                  AND (i.requested_at, i.id) < (before.requested_at, before.id)
                OFFSET 0
            ) i
            LIMIT $5::bigint
        ) i
    )
    SELECT e.*, between_them.left_out
    FROM between_them
    CROSS JOIN (SELECT first.* FROM first UNION ALL SELECT last.* FROM last) e
) i
ORDER BY i.requested_at, i.id
