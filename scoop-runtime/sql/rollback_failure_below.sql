-- On which failed rollbacks below a run does an operator have to decide first? Each with its latest failure. See
-- scoop.undecided_rollbacks.
-- Locks: nothing.
-- $1 root, $2 the run, whose rollback failed, $3 how many at most
SELECT u.run, u.handler, scoop.shown_failure(scoop.latest_rollback_failure(u.run, (
           SELECT e.exception FROM scoop.message_event e
           WHERE e.type = 'ROLLBACK_FAILED' AND e.cooperation_lineage[1] = $1
             AND scoop.run_id(e.cooperation_lineage) = u.run
           LIMIT 1))) AS failure
FROM scoop.undecided_rollbacks($1, ARRAY[$2::uuid], $3) u
WHERE u.run <> $2
ORDER BY u.place
