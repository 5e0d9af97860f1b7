-- Who listened where, and when?
-- Locks: nothing.
SELECT h.topic, h.handler,
       h.since, h.retired_at, h.dropped_at IS NOT NULL AS dropped
FROM scoop.handler h
