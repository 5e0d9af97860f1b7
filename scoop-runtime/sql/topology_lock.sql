-- Waits for all other changes of the topology. It is the first statement of its transaction: so the next one sees all workers, and
-- two such transactions never wait for each other's rows of worker.
-- Locks: an advisory lock of the topology, until the end of the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('scoop.topology', 4))
