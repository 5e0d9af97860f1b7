-- Locks a run and those above it, before a decision about it is made: whether these wait for it stays as it is read afterwards.
-- Locks: these rows of run, the root first: a settlement locks its run before the runs below.
-- $1 root, $2 the lineage of the run
SELECT r.id
FROM scoop.run r
WHERE r.root = $1 AND r.id = ANY ($2)
ORDER BY cardinality(r.lineage)
FOR NO KEY UPDATE
