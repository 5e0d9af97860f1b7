-- Deletes runs from the working set: an operator has decided that they are not executed any more.
-- Locks: the rows of run that go.
-- $1 root, $2 the ids
WITH gone AS (
    DELETE FROM scoop.run r
    WHERE r.root = $1 AND r.id = ANY ($2)
    RETURNING r AS run
)
INSERT INTO scoop.ended_run SELECT e.* FROM gone CROSS JOIN LATERAL scoop.dropped_run(gone.run) e
ON CONFLICT (root, id) DO NOTHING
