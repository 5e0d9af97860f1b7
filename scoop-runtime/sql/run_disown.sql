-- Frees the runs that are mine by the books although I do not work on them: a claim or a
-- settlement may have been carried out without its answer reaching me. What they were in the middle of counts as
-- a failed attempt. The first time the run is ready at once, then after a pause that grows, and at last it is stuck.
-- Locks: the freed rows of run.
-- $1 worker, $2 the ids of the runs that I do work on, $3 the first pause in seconds, $4 the longest,
-- $5 how many attempts in a row may end so, $6 the reason of these, $7 the reason of a run that is stuck
WITH lost AS MATERIALIZED (
    SELECT r.root, r.id, CASE WHEN r.reason = $6 THEN r.doubts + 1 ELSE 1 END AS doubts
    FROM scoop.run r
    WHERE r.owner = $1 AND r.state = 'running' AND r.id <> ALL ($2)
    FOR NO KEY UPDATE
)
UPDATE scoop.run r
SET state = CASE WHEN lost.doubts < $5 THEN 'ready' ELSE 'stuck' END::scoop.run_state,
    owner = NULL,
    ready_at = clock_timestamp() + CASE
        WHEN lost.doubts BETWEEN 2 AND $5 - 1 THEN make_interval(secs => least($3 * 2 ^ (lost.doubts - 2), $4))
        ELSE '0'
    END,
    (attempts, retries, tried_under) = (
        SELECT t.attempts + 1, t.retries, t.tried_under
        FROM scoop.tried(r.attempts, r.retries, r.tried_under, (
            SELECT own.definition
            FROM scoop.worker w, unnest(w.handlers, w.definitions) AS own (handler, definition)
            WHERE w.id = $1 AND own.handler = r.handler
        ), NULL) t
    ),
    doubts = lost.doubts,
    reason = CASE WHEN lost.doubts < $5 THEN $6 ELSE $7 END
FROM lost
WHERE r.root = lost.root AND r.id = lost.id
RETURNING r.root, r.id, r.state = 'stuck' AS stuck
