-- Frees the runs that are mine by the books although I do not work on them: a claim or a
-- settlement may have been carried out without its answer reaching me. What they were in the middle of counts as
-- an attempt in vain.
-- Locks: the freed rows of run.
-- $1 worker, $2 the ids of the runs that I do work on
UPDATE scoop.run r
SET state = 'ready', owner = NULL, ready_at = clock_timestamp(), reason = 'what became of it was not known',
    (attempts, retries, tried_under) = (
        SELECT t.attempts + 1, t.retries, t.tried_under
        FROM scoop.tried(r.attempts, r.retries, r.tried_under, (
            SELECT own.definition
            FROM scoop.worker w, unnest(w.handlers, w.definitions) AS own (handler, definition)
            WHERE w.id = $1 AND own.handler = r.handler
        ), NULL) t
    )
WHERE r.owner = $1 AND r.state = 'running' AND r.id <> ALL ($2)
