-- Returns how many runs a signal has reached, and whether it is about to reach some: it is kept, and runs await its key.
-- Locks: nothing.
-- $1 id
SELECT s.reached,
       s.delivered_at IS NULL AND s.kept_until > clock_timestamp() AND EXISTS (
           SELECT FROM scoop.run r WHERE r.state = 'ready' AND (r.awaited).signal = s.name AND (r.awaited).key = s.key
             AND NOT r.giving_up AND r.ready_at > clock_timestamp()
       ) AS is_due
FROM scoop.signal s WHERE s.id = $1
