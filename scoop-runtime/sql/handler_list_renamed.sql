-- Lists the names under which newer programs subscribe these sagas. Of the rows of a name only the newest counts: a
-- program that took the name back, or gave it to another saga, has replaced the others.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT DISTINCT h.topic, h.handler, m.handler
FROM unnest($1::text[], $2::text[]) AS m (topic, handler)
JOIN (
    SELECT DISTINCT ON (h.topic, h.handler) h.topic, h.handler, h.was
    FROM scoop.handler h
    ORDER BY h.topic, h.handler, h.retired_at IS NULL DESC, h.since DESC
) h ON h.topic = m.topic AND m.handler = ANY (h.was)
WHERE h.handler <> ALL ($2::text[])
ORDER BY 1, 2, 3
