-- Makes stuck runs of these sagas ready: a program that has the sagas started, ended or changed
-- its definitions. Not those that an operator
-- has to repair.
-- Locks: the rows of run that become ready.
-- $1 handlers
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp(), reason = NULL, reserved_for = 0, refused_by = NULL
WHERE r.state = 'stuck' AND NOT r.held AND r.handler = ANY ($1::text[])
