-- Which unfinished runs are below a run, the nearest first? Goes on below those that wait for children.
-- Locks: nothing.
-- $1 root, $2 id, $3 how many at most
WITH RECURSIVE below AS (
    SELECT r.id, r.state = 'waiting' OR (r.awaited).children IS NOT NULL AS waits FROM scoop.run r
    WHERE r.root = $1 AND r.parent = $2 AND r.state::text NOT IN ('ended', 'failed')
    UNION
    SELECT child.id, child.waits
    FROM below
    CROSS JOIN LATERAL (
        SELECT r.id, r.state = 'waiting' OR (r.awaited).children IS NOT NULL AS waits FROM scoop.run r
        WHERE r.root = $1 AND r.parent = below.id AND r.state::text NOT IN ('ended', 'failed')
        OFFSET 0
    ) child
    WHERE below.waits
)
SELECT {unfinished_shown}
FROM (SELECT below.id FROM below LIMIT $3) nearest
CROSS JOIN LATERAL (
    SELECT u.* FROM scoop.unfinished_run u WHERE u.root = $1 AND u.id = nearest.id OFFSET 0
) u
