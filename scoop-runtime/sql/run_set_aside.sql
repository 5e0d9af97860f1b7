-- Sets a run aside that no definition at hand can continue, with the reason and since when.
-- Locks: its row of run.
-- $1 root, $2 id, $3 epoch, $4 reason
UPDATE scoop.run r
SET state = 'stuck', owner = NULL, reason = $4, ready_at = clock_timestamp()
WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
