-- Changes which definitions a living worker has of its sagas.
-- Locks: its row of worker.
-- $1 worker, $2 its definitions, in the order of its handlers
UPDATE scoop.worker SET definitions = $2 WHERE id = $1
