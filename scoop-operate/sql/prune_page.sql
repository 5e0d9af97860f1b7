-- Which hierarchies have runs that are old enough to be deleted? Reads a page of all runs, in the order of their hierarchies, with
-- the hierarchies that the automatic deletion looks at at a time of their own. A row for each hierarchy that was read.
-- Locks: nothing.
-- $1 the hierarchy after which to begin, $2 how many seconds ago, $3 how many rows at most
SELECT page.root, bool_or(page.may_be_old) AS may_be_old, bool_or(page.is_put_off) AS is_put_off
FROM (
    (SELECT r.root, r.ended_at < scoop.kept_since($2) AS may_be_old, false AS is_put_off
     FROM scoop.ended_run r WHERE r.root > $1 ORDER BY r.root LIMIT $3)
    UNION ALL
    (SELECT r.root, r.last_event_at < scoop.kept_since($2), false
     FROM scoop.run r WHERE r.root > $1 ORDER BY r.root LIMIT $3)
    UNION ALL
    (SELECT k.root, true, k.failures > 0 FROM scoop.kept_hierarchy k WHERE k.root > $1 ORDER BY k.root LIMIT $3)
    ORDER BY root
    LIMIT $3
) page
GROUP BY page.root
ORDER BY page.root
