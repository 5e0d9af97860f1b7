-- Which of these runs wait for nobody any more? Makes them ready. Asked after the children's
-- commit, so that of two last children at least one finds both gone.
-- Locks: the rows of run that become ready.
-- $1 roots, $2 ids, $3 when a child's last event was
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp(), last_event_at = greatest(r.last_event_at, w.at)
FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) AS w (root, id, at)
WHERE r.root = w.root AND r.id = w.id AND r.state = 'waiting'
  AND NOT EXISTS (
      SELECT FROM scoop.run child
      WHERE child.root = r.root AND child.parent = r.id AND child.state <> 'ended'
  )
RETURNING r.topic, r.handler
