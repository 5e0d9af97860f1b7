-- Which failed rollbacks have to end before this run goes on: its own, or those of runs below it? The answer may be the run
-- itself. Either those on which an operator has to decide, or those in repair. Each with its latest failure. See
-- scoop.blocking_rollbacks.
-- Locks: nothing.
-- $1 root, $2 the run, $3 whether those in repair, $4 how many at most
SELECT b.run, b.handler, scoop.shown_failure(scoop.latest_rollback_failure(b.run, (
           SELECT e.exception FROM scoop.message_event e
           WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
             AND scoop.run_id(e.cooperation_lineage) = b.run
           LIMIT 1))) AS failure
FROM scoop.blocking_rollbacks($1, ARRAY[$2::uuid], $3, $4) b
ORDER BY b.place
