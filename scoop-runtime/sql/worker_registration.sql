-- Is this worker registered, and of which subscriptions of its program is there no row, not even of an ended one?
-- Locks: nothing.
-- $1 worker, $2 topics and $3 handlers (pairs)
SELECT EXISTS (SELECT FROM scoop.worker w WHERE w.id = $1) AS has_worker,
       ARRAY(
           SELECT own.position
           FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS own (topic, handler, position)
           WHERE NOT EXISTS (SELECT FROM scoop.handler h WHERE h.topic = own.topic AND h.handler = own.handler)
           ORDER BY own.position
       ) AS missing
