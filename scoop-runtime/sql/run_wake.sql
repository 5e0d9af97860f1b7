-- Which of these runs wait for nobody any more? Makes them ready. Asked after the children's
-- commit, so that of two last children at least one finds both gone.
-- Locks: the rows of run that become ready.
-- $1 the runs: an array of objects with root, id and the time of a child's last event
-- (the filter by type makes the planner take the array for short, so that runs are looked up by index)
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp(), last_event_at = greatest(r.last_event_at, w.at)
FROM jsonb_array_elements($1) AS parent (object)
CROSS JOIN jsonb_to_record(object) AS w (root uuid, id uuid, at timestamptz)
WHERE jsonb_typeof(object) = 'object'
  AND r.root = w.root AND r.id = w.id AND r.state = 'waiting'
  AND NOT EXISTS (
      SELECT FROM scoop.run child
      WHERE child.root = r.root AND child.parent = r.id AND child.state <> 'ended'
  )
RETURNING r.handler
