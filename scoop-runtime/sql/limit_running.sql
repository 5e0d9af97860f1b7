-- All runs of these handlers that count for their limit, as in limit_follow.sql, for a process that does not know what the last claims
-- have done; and the number of the newest row about that. There is a row also without runs. It follows limit_lock.sql in its transaction.
-- The conditions on the id and on what has ended always hold: they choose the index of lists. Ready runs that have a key are among the rare ones.
-- Locks: nothing.
-- $1 saga, $2 handlers, $3 whether runs are serial
SELECT newest.number, run.root, run.id, run.key
FROM (SELECT max(l.number) AS number FROM scoop.limit_log l WHERE l.saga = $1) newest
LEFT JOIN (
    SELECT r.root, r.id, r.limit_key::text AS key FROM scoop.run r
    WHERE r.state = ANY (CASE WHEN $3 THEN '{running,waiting,stuck,failed}' ELSE '{running}' END::scoop.run_state[])
      AND r.state <> 'ended' AND r.handler = ANY ($2::text[]) AND r.id >= '00000000-0000-0000-0000-000000000000'
    UNION ALL
    SELECT r.root, r.id, r.limit_key::text FROM scoop.run r
    WHERE $3 AND scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) IN ('suspect', 'prioritized', 'keyed')
      AND r.handler::text = ANY ($2::text[]) AND scoop.held_key(r.state, r.limit_key, r.parked_since) IS NOT NULL
) run ON true
