-- Deletes runs from the working set: an operator has decided that they are not executed any more.
-- Locks: the rows of run that go.
-- $1 root, $2 the ids
DELETE FROM scoop.run r
WHERE r.root = $1 AND r.id = ANY ($2)
