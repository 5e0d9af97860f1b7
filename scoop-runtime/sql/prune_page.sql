-- Which hierarchies may be old enough to be deleted? Reads a page of all events in the order of their ids, which is about that
-- of their times, up to the first one that is too young. A row for each, with the root if it started a hierarchy. Ids that
-- are not of version 7 have no such order: those of the last range are all read.
-- Locks: nothing.
-- $1 the event after which to begin; null for the place up to which kept hierarchies are remembered, $2 how many seconds
-- ago, $3 how many events at most
WITH page AS MATERIALIZED (
    SELECT e.id, e.type::text AS type, e.cooperation_lineage AS lineage,
           e.created_at >= scoop.kept_since($2) AND e.created_at < clock_timestamp() + interval '1 day' AS is_young
    FROM scoop.message_event e
    WHERE e.id > coalesce($1, (SELECT r.after_event FROM scoop.retention r WHERE r.is_only))
    ORDER BY e.id
    LIMIT $3
)
SELECT old.id,
       CASE WHEN old.type = 'EMITTED' AND cardinality(old.lineage) = 1 AND NOT old.is_young THEN old.lineage[1] END AS root
FROM (
    SELECT p.*, bool_or(p.is_young AND p.id < '03bb2cc3-d800-0000-0000-000000000000') OVER (ORDER BY p.id) AS is_over
    FROM page p
) old
WHERE NOT old.is_over
ORDER BY old.id
