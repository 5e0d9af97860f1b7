-- Makes waiting runs ready that have no child left and that no worker woke: it died, or lost the answer to the commit
-- of the last child. Returns their handlers. A run that has continued since this statement began, and waits for new
-- children that the statement does not see, has another epoch by then and stays as it is.
-- Locks: the rows of run that become ready.
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp()
FROM scoop.run seen
WHERE r.root = seen.root AND r.id = seen.id AND r.epoch = seen.epoch
  AND r.state = 'waiting' AND seen.state = 'waiting'
  AND NOT EXISTS (
      SELECT FROM scoop.run child
      WHERE child.root = seen.root AND child.parent = seen.id AND child.state <> 'ended'
  )
RETURNING r.handler
