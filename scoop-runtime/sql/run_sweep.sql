-- Which runs wait for nobody although nobody woke them, because who should have is dead, or never
-- learned that the last child's end was committed? Makes them ready, and says whose they are.
-- A run that has gone on since this statement began, and waits for new children that it does not
-- see, has another epoch than it saw, and is left alone.
-- Ended runs whose parent is not in the working set leave it: none takes note of them, and a client would wait for them.
-- Locks: the rows of run that become ready, and of those that leave.
WITH unheeded AS (
    DELETE FROM scoop.run r
    WHERE r.state = 'ended' AND r.lineage <> '{}'  -- not the rows that 0005_lean.sql has added
      AND NOT EXISTS (SELECT FROM scoop.run parent WHERE parent.root = r.root AND parent.id = r.parent)
)
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
