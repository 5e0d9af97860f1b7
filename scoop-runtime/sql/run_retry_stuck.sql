-- Makes stuck runs of these sagas ready: a program that has the sagas started, ended or changed its definitions. Not
-- those that only an operator may retry.
-- Locks: the rows of run that become ready.
-- $1 handlers, $2 after how many attempts with an unknown result a run waits for an operator
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp(), reason = NULL, reserved_for = 0, refused_by = NULL
WHERE r.state = 'stuck' AND NOT r.awaits_operator AND r.doubts < $2 AND r.handler = ANY ($1::text[])
