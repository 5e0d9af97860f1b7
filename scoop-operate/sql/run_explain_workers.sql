-- Which worker owns a run, or else which workers have its saga? Whether each lives, and the name and the address of its
-- session, if the role may see these.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 the owner, null for none; $2 the handler, $3 the topic, $4 how many at most
SELECT w.id, w.started_at, coalesce(own.definition, 0) AS definition,
       NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role) AS is_alive,
       session.application_name AS application, host(session.client_addr) AS address
FROM scoop.worker w
LEFT JOIN LATERAL (
    SELECT own.definition FROM unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition)
    WHERE own.topic = $3 AND own.handler = $2
    LIMIT 1
) own ON true
LEFT JOIN LATERAL (
    SELECT a.application_name, a.client_addr FROM pg_stat_get_activity(w.backend) a
    WHERE a.usesysid = w.role AND coalesce(a.backend_start = w.backend_since, true)
    LIMIT 1
) session ON true
WHERE CASE WHEN $1::uuid IS NULL THEN own.definition IS NOT NULL ELSE w.id = $1 END
ORDER BY w.started_at DESC
LIMIT $4
