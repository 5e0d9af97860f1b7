-- Gives the runs that were set aside another chance: the definitions of this process are new. Not
-- those that an operator has to see to.
-- Locks: the rows of run that become ready.
-- $1 topics and $2 handlers (pairs)
UPDATE scoop.run r
SET state = 'ready', ready_at = clock_timestamp(), reason = NULL, reserved_for = 0, refused_by = NULL
FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
WHERE r.state = 'stuck' AND NOT r.held AND r.topic = mine.topic AND r.handler = mine.handler
