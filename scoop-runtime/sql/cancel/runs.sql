-- The runs that a cancellation makes give up: those at or below $2 in the hierarchy $1. $2 is the id of the hierarchy or of a run.
-- Runs that belong to a rollback are left out.
    SELECT r.root, r.id
    FROM scoop.run r
    WHERE r.root = $1 AND $2 = ANY (r.lineage) AND scoop.can_give_up(r.giving_up, r.rollback_since)
