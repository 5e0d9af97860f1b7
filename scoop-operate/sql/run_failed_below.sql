-- Which failed runs come before this failed one, since it failed because of them? Each with its failure.
-- Locks: nothing.
-- $1 root, $2 the run, $3 how many at most, $4 how many runs below it are read at most
SELECT b.run, b.handler, scoop.shown_failure(b.failure) AS failure
FROM scoop.failed_below($1, $2, $3, $4) b
ORDER BY b.place
