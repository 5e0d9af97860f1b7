-- Makes waiting runs ready that have no child left and that no worker woke: it died, or lost the answer to the commit
-- of the last child. Returns their handlers. A run that has continued since this statement began, and waits for new
-- children that the statement does not see, has another epoch by then and stays as it is.
-- Ended runs whose parent is not in the working set leave it: no parent handles them, and a client would wait for them.
-- Locks: the rows of run that become ready, and of those that leave.
WITH unheeded AS (
    DELETE FROM scoop.run r
    WHERE r.state = 'ended' AND r.lineage <> '{}'  -- not the ballast, see 0001_tables.sql
      AND NOT EXISTS (SELECT FROM scoop.run parent WHERE parent.root = r.root AND parent.id = r.parent)
)
UPDATE scoop.run r
SET state = 'ready',
    ready_at = CASE WHEN r.state = 'waiting' THEN scoop.wakes_at(r.ready_at, r.last_event_at, clock_timestamp())
                    ELSE clock_timestamp() END,
    awaited = CASE WHEN r.state = 'waiting' THEN r.awaited END
FROM (
    SELECT w.root, w.id, w.epoch, w.state FROM scoop.run w
    WHERE w.state = 'waiting'
      AND NOT EXISTS (
          SELECT FROM scoop.run child
          WHERE child.root = w.root AND child.parent = w.id AND child.state NOT IN ('ended', 'failed')
      )
    UNION ALL
    -- those about which a strategy decides
    SELECT w.root, w.id, w.epoch, w.state FROM scoop.run w
    WHERE w.state = 'ready' AND (w.awaited).children IS NOT NULL AND (w.awaited).signal IS NULL
      AND (
          SELECT count(*) FROM scoop.run child
          WHERE child.root = w.root AND child.parent = w.id AND child.state NOT IN ('ended', 'failed')
      ) <= (w.awaited).children
) snapshot
WHERE r.root = snapshot.root AND r.id = snapshot.id AND r.epoch = snapshot.epoch AND r.state = snapshot.state
RETURNING r.handler
