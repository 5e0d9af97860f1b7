-- How far has a pause taken effect? Whether there is one, whether a handler was ever
-- registered that it covers, which living workers may still claim by an earlier topology, and
-- how many runs that it covers are in the middle of a step: also those of dead workers, since a process that has lost its
-- session may still execute them until they are freed. The count ends at $3.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 kind and $2 name of the pause, $3 the maximum of the count
WITH living AS MATERIALIZED (
    SELECT w.id, w.topology <> w.acknowledged AS is_behind FROM scoop.worker w
    WHERE NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
)
SELECT EXISTS (SELECT FROM scoop.pause p WHERE p.kind = $1::text AND p.name::text = $2::text) AS stands,
       $1::text = 'everything' OR EXISTS (
           SELECT FROM scoop.handler h
           WHERE CASE WHEN $1::text = 'topic' THEN h.topic::text = $2::text
                      ELSE h.handler::text = $2::text OR $2::text = ANY (h.was) END
       ) AS is_known,
       ARRAY(SELECT id FROM living WHERE is_behind ORDER BY id) AS behind,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'running' AND r.id >= '00000000-0000-0000-0000-000000000000'
             AND CASE WHEN $1::text = 'everything' THEN true
                      WHEN $1::text = 'topic' THEN r.topic::text = $2::text
                      ELSE r.handler::text
                          IN (SELECT p.covers FROM scoop.paused p WHERE p.kind = $1::text AND p.name::text = $2::text) END
           LIMIT $3
       ) running) AS running
