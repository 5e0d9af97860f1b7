-- Which hierarchies could not be deleted, the one that is tried again first at the beginning?
-- Locks: nothing.
-- $1 how many at most
SELECT k.root, coalesce(scoop.root_topic(k.root), '') AS topic, k.error, k.failures, k.until AS retry_at
FROM (
    SELECT k.root, k.error, k.failures, k.until FROM scoop.kept_hierarchy k
    WHERE (k.failures > 0) IS TRUE
    ORDER BY k.until LIMIT $1
) k
ORDER BY k.until
