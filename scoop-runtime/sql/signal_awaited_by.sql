-- Returns the saga of a run, and the name and key of the signal that it awaits.
-- Locks: nothing.
-- $1 root, $2 run
SELECT r.handler::text, (r.awaited).signal, (r.awaited).key AS signal_key
FROM scoop.run r
WHERE r.root = $1 AND r.id = $2 AND r.state::text = 'ready' AND (r.awaited).signal IS NOT NULL
  AND NOT r.giving_up AND r.ready_at > (SELECT clock_timestamp())
