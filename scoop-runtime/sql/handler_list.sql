-- Lists the subscriptions of handlers, with their times.
-- Locks: nothing.
SELECT h.topic, h.handler, h.since
FROM scoop.handler h
WHERE h.retired_at IS NULL
ORDER BY h.topic, h.handler
