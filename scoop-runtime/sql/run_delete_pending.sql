-- Deletes pending runs whose parent gives up.
-- Locks: the rows of run that go.
-- $1 root, $2 the id of the hierarchy or run
WITH gone AS (
    DELETE FROM scoop.run child
    USING scoop.run parent
    WHERE child.root = $1 AND $2 = ANY (child.lineage) AND child.epoch = 0 AND NOT child.rollback_requested
      AND child.rollback_since IS NULL
      AND parent.root = child.root AND parent.id = child.parent AND parent.giving_up
    RETURNING child AS run
)
INSERT INTO scoop.ended_run SELECT e.* FROM gone CROSS JOIN LATERAL scoop.dropped_run(gone.run) e
