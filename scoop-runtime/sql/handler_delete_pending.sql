-- Deletes the runs of a retired handler that have not begun, and returns the runs that wait for them.
-- Locks: its rows of handler, the rows of run that go.
-- $1 topic, $2 handler
WITH dropped AS (
    UPDATE scoop.handler
    SET dropped = clock_timestamp()
    WHERE topic = $1 AND handler = $2 AND until IS NOT NULL AND dropped IS NULL
)
DELETE FROM scoop.run r
WHERE r.state = 'ready' AND r.handler = $2 AND r.topic = $1 AND r.epoch = 0 AND NOT r.told
RETURNING r.root, r.parent, r.last_event_at AS at
