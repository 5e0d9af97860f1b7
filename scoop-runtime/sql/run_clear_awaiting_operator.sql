-- Records of waiting runs that they wait for no run any more that awaits an operator.
-- Locks: the rows of run that change, which the transaction has locked before (run_lock_above.sql).
-- $1 root, $2 the runs, $3 when
UPDATE scoop.run r
SET awaits_operator = false, reason = NULL, last_event_at = greatest(r.last_event_at, $3)
WHERE r.root = $1 AND r.id = ANY ($2) AND r.state = 'waiting' AND r.awaits_operator
