-- Lists the sagas of a living process anew.
-- Locks: its row of worker.
-- $1 worker, $3 the handlers it runs, $2 the topic of each and $4 its definition
UPDATE scoop.worker SET topics = $2, handlers = $3, definitions = $4 WHERE id = $1
