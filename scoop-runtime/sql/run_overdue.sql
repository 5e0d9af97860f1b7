-- Which waiting runs have missed a deadline? They give up: what they launched, or told to roll back,
-- and nobody has begun is not begun any more. Who else is at work below them is waited for; whether that
-- is anybody, a later statement tells.
-- Locks: the rows of run that are overdue, and those of their children that nobody has begun.
-- $1 how many
WITH overdue AS MATERIALIZED (
    SELECT r.root, r.id
    FROM scoop.run r
    WHERE r.state = 'waiting' AND NOT r.gives_up AND r.give_up_at <= (SELECT clock_timestamp())
    ORDER BY r.give_up_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM scoop.run child
    USING overdue
    WHERE child.root = overdue.root AND child.parent = overdue.id
      AND child.epoch = child.first_epoch
)
UPDATE scoop.run r
SET gives_up = true
FROM overdue
WHERE r.root = overdue.root AND r.id = overdue.id
RETURNING r.root, r.id, r.last_event_at AS at
