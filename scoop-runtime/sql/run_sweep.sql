-- Which runs wait for nobody although nobody woke them, because who should have is dead, or never
-- learned that the last child's end was committed? Makes them ready.
-- A run that has gone on since this statement began, and waits for new children that it does not
-- see, has another epoch than when it was looked up, and is left alone.
-- Locks: the rows of run that become ready.
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp()
FROM scoop.run seen
WHERE seen.state = 'waiting'
  AND r.root = seen.root AND r.id = seen.id AND r.epoch = seen.epoch AND r.state = 'waiting'
  AND NOT EXISTS (
      SELECT FROM scoop.run child
      WHERE child.root = r.root AND child.parent = r.id AND child.state <> 'ended'
  )
