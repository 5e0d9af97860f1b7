-- Who listened where, and when?
-- Locks: nothing.
SELECT h.topic, h.handler,
       -- a program knows the years 1 to 9999
       greatest('0001-01-01Z', least('9999-12-31Z', h.since)) AS since,
       CASE WHEN h.until IS NOT NULL THEN greatest('0001-01-01Z', least('9999-12-31Z', h.until)) END AS until,
       h.dropped IS NOT NULL AS dropped
FROM scoop.handler h
