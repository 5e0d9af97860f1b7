-- Retires the handlers of these services that no living process has any more. A living process of the service has to be of another
-- build than the one that had the handler last, and has to have started after that one first did: so neither the end of all processes
-- nor that of a newer build retires anything. Runs of messages launched before remain. A retired row with a service and without a build is of
-- such a retirement.
-- Locks: the rows of handler that it retires; the advisory locks of the dead, for the moment.
-- $1 services, $2 a worker that lives, since it asks
WITH living AS MATERIALIZED (
    SELECT w.service, w.build, w.kept, w.started_at, w.topics, w.handlers
    FROM scoop.worker w
    WHERE CASE WHEN w.id = $2 THEN true ELSE NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role) END
)
UPDATE scoop.handler h
SET retired_at = clock_timestamp(), build = NULL, build_since = NULL
WHERE h.retired_at IS NULL AND h.service = ANY ($1)
  AND EXISTS (
      SELECT FROM living l WHERE l.service = h.service AND l.build <> h.build AND l.started_at > h.build_since
  )
  AND NOT EXISTS (
      SELECT FROM living l WHERE l.service = h.service AND (l.kept IS NULL OR h.handler = ANY (l.kept))
  )
  AND (h.topic, h.handler) NOT IN (
      SELECT own.topic, own.handler FROM living l CROSS JOIN LATERAL unnest(l.topics, l.handlers) AS own (topic, handler)
  )
RETURNING h.topic, h.handler, h.service
