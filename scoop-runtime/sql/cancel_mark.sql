-- Which runs have to give up, since it was asked of them or of one above them? Not those that belong
-- to a rollback. To be repeated until it finds none, since a run that is being settled may launch
-- others that this statement does not see.
-- Locks: the rows of run that are marked.
-- $1 root, $2 lineage
UPDATE scoop.run r
SET gives_up = true, ready_at = least(r.ready_at, clock_timestamp())
WHERE r.root = $1 AND r.lineage @> $2 AND NOT r.gives_up AND r.undoing_since IS NULL
