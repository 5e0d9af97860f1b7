-- Deletes pending runs whose parent gives up; or that give up themselves, and whose launcher has gone on without them.
-- Locks: the rows of run that go.
-- $1 root, $2 the id of the hierarchy or run
WITH gone AS (
    DELETE FROM scoop.run child
    WHERE child.root = $1 AND $2 = ANY (child.lineage) AND child.epoch = 0 AND NOT child.rollback_requested
      AND child.rollback_since IS NULL
      AND CASE WHEN child.parent IS NULL THEN child.giving_up AND cardinality(child.lineage) > 2
               ELSE (
                   SELECT parent.giving_up FROM scoop.run parent WHERE parent.root = child.root AND parent.id = child.parent
               ) END
    RETURNING child AS run
)
INSERT INTO scoop.ended_run SELECT e.* FROM gone CROSS JOIN LATERAL scoop.dropped_run(gone.run) e
