-- Which runs have to give up, since it was asked of them or of one above them? Not those that belong
-- to a rollback. To be repeated until it sees none, since a run that is being settled may launch
-- others that this statement does not see. Of those that it sees it may mark none, if somebody else has
-- meanwhile; what they have launched it has not seen all the same. Says how many it saw and marked.
-- Locks: the rows of run that are marked.
-- $1 root, $2 the id of the hierarchy or run
WITH seen AS MATERIALIZED (
    SELECT r.root, r.id
    FROM scoop.run r
    WHERE r.root = $1 AND $2 = ANY (r.lineage) AND NOT r.gives_up AND r.undoing_since IS NULL
),
-- in the order in which settlements lock theirs, so that the two seldom wait for each other
locked AS MATERIALIZED (
    SELECT r.root, r.id
    FROM scoop.run r
    JOIN seen ON seen.root = r.root AND seen.id = r.id
    WHERE NOT r.gives_up AND r.undoing_since IS NULL
    ORDER BY r.id
    FOR UPDATE OF r
),
marked AS (
    UPDATE scoop.run r
    SET gives_up = true, ready_at = least(r.ready_at, clock_timestamp())
    FROM locked
    WHERE r.root = locked.root AND r.id = locked.id
    RETURNING r.id
)
SELECT (SELECT count(*) FROM seen) AS seen, (SELECT count(*) FROM marked) AS marked
