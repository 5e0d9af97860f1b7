-- Who listened where, and when?
-- Locks: nothing.
SELECT h.topic, h.handler,
       h.since, h.until, h.dropped IS NOT NULL AS dropped
FROM scoop.handler h
