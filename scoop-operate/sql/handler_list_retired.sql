-- Lists the handlers that are not subscribed any more, or the first ones, with the last time of that.
-- Locks: nothing.
-- $1 how many, null for all
SELECT h.topic, h.handler, max(h.retired_at) AS retired_at
FROM scoop.handler h
WHERE h.retired_at IS NOT NULL
  -- a count, so that each is looked up by index
  AND (SELECT count(*) FROM scoop.handler listed
       WHERE listed.topic = h.topic AND listed.handler = h.handler AND listed.retired_at IS NULL) = 0
GROUP BY h.topic, h.handler
ORDER BY h.topic, h.handler
LIMIT $1
