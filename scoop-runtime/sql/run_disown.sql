-- Frees the runs that are mine by the books although I do not work on them: a claim or a
-- settlement may have been carried out without its answer reaching me. What they were in the middle of counts as
-- an attempt in vain.
-- Locks: the freed rows of run.
-- $1 worker, $2 the ids of the runs that I do work on
UPDATE scoop.run r
SET state = 'ready', owner = NULL, ready_at = clock_timestamp(),
    attempts = r.attempts + 1, reason = 'what became of it was not known'
WHERE r.owner = $1 AND r.state = 'running' AND r.id <> ALL ($2)
