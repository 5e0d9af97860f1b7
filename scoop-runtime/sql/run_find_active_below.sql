-- Checks whether other runs at or below this run are active, and returns the state of the run itself.
-- Locks: nothing.
-- $1 root, $2 the run's id, $3 the ids of the runs that do not count
SELECT EXISTS (
           SELECT FROM scoop.run r
           WHERE r.root = $1 AND $2 = ANY (r.lineage) AND r.id <> $2 AND r.id <> ALL ($3)
       ) AS others,
       (SELECT r.state::text FROM scoop.run r WHERE r.root = $1 AND r.id = $2) AS state
