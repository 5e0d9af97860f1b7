-- Replaces the list of sagas of a living worker.
-- Locks: its row of worker.
-- $1 worker, $2 topics, $3 handlers and $4 definitions (triples)
UPDATE scoop.worker SET topics = $2, handlers = $3, definitions = $4 WHERE id = $1
