-- Who is listed where, since when?
-- Locks: nothing.
SELECT h.topic, h.handler, h.since
FROM scoop.handler h
WHERE h.until IS NULL
ORDER BY h.topic, h.handler
