-- Marks runs to give up: those of a hierarchy, or of a run and all below it.
-- Repeat it until it sees none: a run that is being settled may launch children that this statement does not see.
-- Another transaction may have marked all that it sees; their children may be invisible all the same, so both counts
-- are returned.
-- Locks: the rows of run that are marked.
-- $1 root, $2 the id of the hierarchy or run
WITH snapshot AS MATERIALIZED (
{cancelled_runs}
),
-- in the order in which settlements lock theirs, so that the two seldom wait for each other
locked AS MATERIALIZED (
    SELECT r.root, r.id
    FROM scoop.run r
    JOIN snapshot ON snapshot.root = r.root AND snapshot.id = r.id
    WHERE scoop.can_give_up(r.giving_up, r.rollback_since)
    ORDER BY r.id
    FOR UPDATE OF r
),
marked AS (
    UPDATE scoop.run r
    SET giving_up = true,
        -- claims may have passed over a run that was new: see scoop.is_new
        ready_at = CASE WHEN r.began_at IS NULL AND scoop.is_paused_for_new(r.handler, r.topic) THEN clock_timestamp()
                        ELSE least(r.ready_at, clock_timestamp()) END
    FROM locked
    WHERE r.root = locked.root AND r.id = locked.id
    RETURNING r.id
)
SELECT (SELECT count(*) FROM snapshot) AS seen, (SELECT count(*) FROM marked) AS marked
