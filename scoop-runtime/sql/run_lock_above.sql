-- Locks a run and those above it, before a decision about it is made: whether they wait for a run that awaits an operator stays as it is
-- read afterwards (run_mark_awaiting_operator.sql).
-- Locks: these rows of run, the nearest first.
-- $1 root, $2 the lineage of the run
SELECT r.id
FROM scoop.run r
WHERE r.root = $1 AND r.id = ANY ($2)
ORDER BY cardinality(r.lineage) DESC
FOR NO KEY UPDATE
