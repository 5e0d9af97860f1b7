-- Ends the subscription of a handler. Runs of messages launched before remain.
-- Locks: its row of handler.
-- $1 topic, $2 handler
UPDATE scoop.handler
SET retired_at = clock_timestamp()
WHERE topic = $1 AND handler = $2 AND retired_at IS NULL
