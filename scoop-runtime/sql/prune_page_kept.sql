-- Which hierarchies that the automatic deletion has passed may be old enough to be deleted? A page of those that are
-- remembered, in the order of their ids.
-- Locks: nothing.
-- $1 the hierarchy after which to begin, $2 how many seconds ago, $3 how many at most
SELECT page.root, page.kind IN ('later', 'undeletable') OR page.since < scoop.kept_since($2) AS may_be_old,
       page.kind = 'undeletable' AS is_put_off
FROM (
    SELECT k.root, k.kind, k.since
    FROM scoop.kept_hierarchy k
    WHERE k.root > $1
    ORDER BY k.root
    LIMIT $3
) page
ORDER BY page.root
