-- Lets failed runs rest without the run above: an operator has skipped the part that waited for them.
-- Locks: these rows of run.
-- $1 root, $2 the run above
UPDATE scoop.run r SET parent = NULL WHERE r.root = $1 AND r.parent = $2 AND r.state = 'failed'
