-- Delays starts and ends of workers until the end of the transaction, and waits for those under way.
-- Locks: my row of worker.
-- $1 worker
SELECT FROM scoop.worker WHERE id = $1 FOR SHARE
