-- Who listened where, and when?
-- Locks: nothing.
SELECT h.topic, h.handler, h.since, h.until, h.dropped FROM scoop.handler h
