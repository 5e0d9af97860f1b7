-- Makes stuck runs of these sagas ready: a program that has the sagas started, ended or changed its definitions. Not
-- those that only an operator may retry. One that awaits a signal and does not give up awaits it again, for as long as before.
-- Locks: the rows of run that become ready.
-- $1 handlers, $2 after how many attempts with an unknown result a run waits for an operator
UPDATE scoop.run r
SET state = 'ready', parked_since = NULL,
    ready_at = CASE WHEN r.giving_up OR (r.awaited).signal IS NULL THEN clock_timestamp() ELSE coalesce(r.parked_since, r.ready_at) END,
    reason = NULL, reserved_for = 0, refused_by = NULL
WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'stuck' AND ((r.tries).unknown_attempts >= $2) IS NOT TRUE AND r.handler = ANY ($1::text[])
