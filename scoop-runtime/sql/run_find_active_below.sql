-- Checks whether other runs below this run are in the working set, and whether it is stuck. An ended run that is there only for
-- its parent counts, too.
-- Locks: nothing.
-- $1 root, $2 the run's id, $3 the ids of the runs that do not count
SELECT EXISTS (
           SELECT FROM scoop.run other
           WHERE other.root = $1 AND $2 = ANY (other.lineage) AND other.id <> $2 AND other.id <> ALL ($3)
       ) AS others,
       coalesce(scoop.is_stuck(r.state, r.awaits_operator), false) AS is_stuck
FROM (VALUES (true)) AS always (holds)
LEFT JOIN scoop.run r ON r.root = $1 AND r.id = $2
