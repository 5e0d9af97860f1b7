-- Returns all parked runs of these handlers to their queues: their limit has changed.
-- Locks: their rows.
-- $1 handlers
UPDATE scoop.run r
SET ready_at = r.parked_since, parked_since = NULL
WHERE r.state = 'ready' AND r.parked_since IS NOT NULL AND r.handler = ANY ($1::text[])
