-- Lists the handlers that are not subscribed any more, with the last time of that.
-- Locks: nothing.
SELECT h.topic, h.handler, max(h.retired_at) AS retired_at
FROM scoop.handler h
GROUP BY h.topic, h.handler
HAVING count(*) = count(h.retired_at)
ORDER BY h.topic, h.handler
