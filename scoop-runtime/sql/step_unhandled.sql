-- For which of these messages has this transaction created no run? The first of them, of those that a run has just
-- launched. A delivery of its own transaction cannot have begun, so it is in the working set.
-- Locks: nothing.
-- $1 root and $2 run; $3 the messages for its children
-- $4 the messages that start hierarchies of their own, $5 their roots
WITH delivered AS MATERIALIZED (
    SELECT r.message_id FROM scoop.run r WHERE r.root = $1 AND r.parent = $2
)
SELECT id FROM unnest($3::uuid[]) AS own (id) WHERE id NOT IN (SELECT message_id FROM delivered)
UNION ALL
SELECT id FROM unnest($4::uuid[], $5::uuid[]) AS detached (id, root)
WHERE (SELECT count(*) FROM scoop.run r WHERE r.root = detached.root AND r.message_id = detached.id) = 0
LIMIT 1
