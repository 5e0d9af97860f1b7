-- Which steps does the current definition of each saga have? That is the definition of the living worker that started last, or else
-- the newest one.
-- Locks: the advisory locks of the dead, for the moment.
WITH living AS MATERIALIZED (
    SELECT own.handler, own.definition, max(w.started_at) AS started_at
    FROM scoop.worker w
    CROSS JOIN LATERAL unnest(w.handlers, w.definitions) AS own (handler, definition)
    WHERE NOT scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
    GROUP BY own.handler, own.definition
),
current AS MATERIALIZED (
    SELECT DISTINCT ON (d.handler) d.id
    FROM scoop.definition d
    LEFT JOIN living l ON l.handler = d.handler AND l.definition = d.id
    ORDER BY d.handler, l.started_at DESC NULLS LAST, d.id DESC
)
SELECT d.handler, d.steps FROM current JOIN scoop.definition d USING (id) ORDER BY d.handler
