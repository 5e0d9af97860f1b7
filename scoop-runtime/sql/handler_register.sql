-- Subscribes sagas, and ends the subscriptions of their former names on the same topic. A subscribed saga stays as it
-- is. One statement, so that each message is delivered under exactly one of the names, also if this program is the
-- older one and a newer one has renamed the saga.
-- Locks: the new rows of handler, and those of other names of the same sagas.
-- $1 topics and $2 handlers (pairs), $3 handlers and $4 their former names (pairs)
WITH own_handlers AS MATERIALIZED (
    SELECT topic, handler FROM unnest($1::text[], $2::text[]) AS m (topic, handler)
),
former AS MATERIALIZED (
    SELECT DISTINCT m.topic, f.handler, f.was
    FROM unnest($3::text[], $4::text[]) AS f (handler, was) JOIN own_handlers m ON m.handler = f.handler
),
replaced AS (
    UPDATE scoop.handler h
    SET retired_at = clock_timestamp()
    WHERE h.retired_at IS NULL
      AND ((h.topic, h.handler) IN (SELECT topic, was FROM former)
           OR h.was && ARRAY(SELECT m.handler::text FROM own_handlers m WHERE m.topic = h.topic)
           AND h.handler <> ALL ($2::text[]))
)
INSERT INTO scoop.handler (topic, handler, was)
SELECT topic, handler, (
    SELECT array_agg(former.was ORDER BY former.was) FROM former
    WHERE former.handler = own_handlers.handler AND former.topic = own_handlers.topic
)
FROM own_handlers
ORDER BY topic, handler
ON CONFLICT (topic, handler) WHERE retired_at IS NULL DO UPDATE SET was = excluded.was
WHERE scoop.handler.was IS DISTINCT FROM excluded.was
