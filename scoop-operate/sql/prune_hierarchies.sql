-- Deletes each of these hierarchies that is at rest, and returns what became of each: see `0009_retention.sql`.
-- Locks: of each hierarchy its advisory lock and the rows of its messages, without waiting for them.
-- $1 the roots, $2 for how many seconds they have no event, $3 whether to count only
SELECT p.verdict, p.message_count, p.event_count
FROM unnest($1::uuid[]) AS asked (root)
CROSS JOIN LATERAL scoop.prune(asked.root, $2, $2, false, $3) p
