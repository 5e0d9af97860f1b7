-- Which definitions of these sagas do living workers have? A row for each worker and saga.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 topics and $2 handlers (pairs)
WITH living AS MATERIALIZED (
    SELECT w.topics, w.handlers, w.definitions FROM scoop.worker w
    WHERE NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
)
SELECT own.topic, own.handler, own.definition
FROM living w
CROSS JOIN LATERAL unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition)
-- the CASE keeps the planner from making a join of it: the pairs are hashed once
WHERE CASE WHEN (own.topic, own.handler) IN (
    SELECT asked.topic, asked.handler FROM unnest($1::text[], $2::text[]) AS asked (topic, handler)
) THEN true END
