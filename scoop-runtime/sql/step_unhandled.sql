-- Finds the first of these messages, just launched by this transaction, for which it has created no run. A run of the
-- own transaction cannot have begun, so it is in the working set.
-- Locks: nothing.
-- $1 root and $2 run; $3 the messages for its children
-- $4 the messages that start hierarchies of their own, $5 their roots
WITH delivered AS MATERIALIZED (
    SELECT r.message_id FROM scoop.run r WHERE r.root OPERATOR(pg_catalog.=) $1 AND r.parent OPERATOR(pg_catalog.=) $2
)
SELECT id FROM pg_catalog.unnest($3::pg_catalog.uuid[]) AS own (id)
WHERE NOT (id OPERATOR(pg_catalog.=) ANY (SELECT message_id FROM delivered))
UNION ALL
SELECT id FROM unnest($4::pg_catalog.uuid[], $5::pg_catalog.uuid[]) AS detached (id, root)
WHERE (
    SELECT pg_catalog.count(*) FROM scoop.run r
    WHERE r.root OPERATOR(pg_catalog.=) detached.root AND r.message_id OPERATOR(pg_catalog.=) detached.id
) OPERATOR(pg_catalog.=) 0
LIMIT 1
