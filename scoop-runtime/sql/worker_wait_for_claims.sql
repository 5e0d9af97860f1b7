-- Waits for claims of this worker that are in progress in the server, perhaps on a lost connection, and blocks new ones
-- until the end of the transaction. So only a later statement sees all runs that the worker owns. A worker without a
-- row owns nothing: the reaper that deleted the row has freed its runs.
-- Locks: the row of this worker.
-- $1 worker
SELECT id, topics, handlers, definitions, service FROM scoop.worker WHERE id = $1 FOR UPDATE
