-- Counts the pending runs of a handler.
-- Locks: nothing.
-- $1 topic, $2 handler
SELECT count(*) FROM scoop.run r
WHERE r.state = 'ready' AND r.handler = $2 AND r.topic = $1 AND r.epoch = 0 AND NOT r.rollback_requested
