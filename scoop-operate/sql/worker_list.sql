-- Which workers are registered, whether each lives, and which sagas it has? With the name and the address of its session, if
-- the role may see these.
-- Locks: the advisory locks of the dead, for the moment.
SELECT w.id, w.started_at, w.service, w.build, w.topics, w.handlers, w.definitions,
       NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role) AS is_alive,
       session.application_name AS application, host(session.client_addr) AS address
FROM scoop.worker w
LEFT JOIN LATERAL (
    SELECT a.application_name, a.client_addr FROM pg_stat_get_activity(w.backend) a
    WHERE a.usesysid = w.role AND coalesce(a.backend_start = w.backend_since, true)
    LIMIT 1
) session ON true
ORDER BY w.started_at, w.id
