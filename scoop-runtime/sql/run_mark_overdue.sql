-- Marks waiting runs that missed a deadline to give up, and deletes their pending children. Other runs below
-- are waited for; a later statement checks whether there are any.
-- Locks: the rows of run that are overdue, and those of their pending children.
-- $1 how many
WITH overdue AS MATERIALIZED (
    SELECT r.root, r.id
    FROM scoop.run r
    WHERE r.state = 'waiting' AND NOT r.giving_up AND r.give_up_at <= (SELECT clock_timestamp())
    ORDER BY r.give_up_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
),
dropped AS (
    DELETE FROM scoop.run child
    USING overdue
    WHERE child.root = overdue.root AND child.parent = overdue.id
      AND child.epoch = child.unclaimed_epoch
    RETURNING child AS run
),
inserted_end AS (
    INSERT INTO scoop.ended_run SELECT e.* FROM dropped CROSS JOIN LATERAL scoop.dropped_run(dropped.run) e
)
UPDATE scoop.run r
SET giving_up = true, ready_at = least(r.ready_at, clock_timestamp())
FROM overdue
WHERE r.root = overdue.root AND r.id = overdue.id
RETURNING r.root, r.id, r.last_event_at AS at
