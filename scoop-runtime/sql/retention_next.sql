-- Which hierarchies does the automatic deletion look at next? No list if another worker does: see `0009_retention.sql`.
-- Locks: the row of retention, without waiting for it.
-- $1 my worker, $2 for how many seconds committed hierarchies are kept, $3 others, $4 how many hierarchies at most,
-- $5 whether it has an archive
SELECT n.roots, n.is_more, n.behind FROM scoop.retention_next($1, $2, $3, $4, $5) n
