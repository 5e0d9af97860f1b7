-- Checks whether a run is held under this epoch.
-- Locks: nothing.
-- $1 root, $2 id, $3 epoch
SELECT EXISTS (
    SELECT FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
)
