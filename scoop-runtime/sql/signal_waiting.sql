-- Returns the runs that await a signal, in the order in which a delivery locks them.
-- Locks: nothing.
-- $1 name, $2 key
SELECT r.id, r.handler::text, r.step::text FROM scoop.run r
WHERE r.state = 'ready' AND (r.awaited).signal = $1::text AND (r.awaited).key = $2::text
  AND NOT r.giving_up AND r.ready_at > (SELECT clock_timestamp())
ORDER BY r.root, r.id
