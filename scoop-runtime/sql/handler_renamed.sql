-- The names under which newer programs list these sagas.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT DISTINCT h.topic, h.handler, m.handler
FROM unnest($1::text[], $2::text[]) AS m (topic, handler)
JOIN scoop.handler h ON h.topic = m.topic AND m.handler = ANY (h.was)
WHERE h.handler <> ALL ($2::text[])
ORDER BY 1, 2, 3
