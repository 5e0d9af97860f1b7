-- Which hierarchies may be old enough to be deleted? Reads a page of all events in the order of their ids, which is about that
-- of their times: those that the automatic deletion has passed, and after them up to the first one that is too young. A row for
-- each, with the root if it started a hierarchy that is not remembered as kept. Ids that are not of version 7 have no such
-- order: those of the last range are all read.
-- Locks: nothing.
-- $1 the event after which to begin, $2 how many seconds ago, $3 how many events at most
WITH page AS MATERIALIZED (
    SELECT e.id, e.type::text AS type, e.cooperation_lineage AS lineage,
           e.created_at >= scoop.kept_since($2) AND e.created_at < clock_timestamp() + interval '1 day' AS is_young,
           e.id <= (SELECT r.after_event FROM scoop.retention r WHERE r.is_only) AS is_passed
    FROM scoop.message_event e
    WHERE e.id > $1
    ORDER BY e.id
    LIMIT $3
)
SELECT old.id,
       CASE WHEN old.type = 'EMITTED' AND cardinality(old.lineage) = 1 AND NOT old.is_young
             AND NOT (old.is_passed
                      AND (SELECT count(*) FROM scoop.kept_hierarchy k WHERE k.root = old.lineage[1]) > 0)
            THEN old.lineage[1] END AS root
FROM (
    SELECT p.*, bool_or(p.is_young AND NOT p.is_passed AND p.id < '03bb2cc3-d800-0000-0000-000000000000')
                    OVER (ORDER BY p.id) AS is_over
    FROM page p
) old
WHERE NOT old.is_over
ORDER BY old.id
