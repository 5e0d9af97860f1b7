-- Inserts the failed rollbacks that no operator has settled into their empty list.
-- Locks: the new rows of rollback_failure.
INSERT INTO scoop.rollback_failure (root, run, parent, depth, handler, message_id, failed_at)
SELECT f.root, f.run, f.parent, f.depth, f.handler, f.message_id, f.failed_at
FROM scoop.recorded_rollback_failure f
