-- Which runs wait for nobody although nobody woke them, because who should have is dead, or never
-- learned that the last child's end was committed? Makes them ready.
-- Locks: the rows of run that become ready.
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp()
WHERE r.state = 'waiting'
  AND NOT EXISTS (
      SELECT FROM scoop.run child
      WHERE child.root = r.root AND child.parent = r.id AND child.state <> 'ended'
  )
