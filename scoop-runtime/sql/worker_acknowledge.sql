-- Records that a worker follows this topology, with its pauses. Waits for claims of the worker that are in progress in the
-- server: they may be by an earlier topology. If the topology has changed again, nothing is recorded.
-- Locks: the row of this worker.
-- $1 worker, $2 the topology that it follows
WITH own_worker AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $1 AND topology = $2 FOR UPDATE
)
UPDATE scoop.worker w SET acknowledged = $2 FROM own_worker WHERE w.id = own_worker.id
