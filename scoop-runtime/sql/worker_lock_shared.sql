-- Delays starts and ends of workers until the end of the transaction, and waits for those under way.
-- Locks: the row of this worker.
-- $1 worker
SELECT FROM scoop.worker WHERE id = $1 FOR SHARE
