-- Returns the names and keys of kept signals that a run awaits, as signal_deliver.sql finds them, in the order of names and keys.
-- Locks: nothing.
-- $1 a transaction: signals that this and later ones have sent
SELECT DISTINCT s.name::text, s.key::text
FROM scoop.signal s
CROSS JOIN LATERAL (
    SELECT FROM scoop.run r WHERE r.state = 'ready' AND (r.awaited).signal = s.name AND (r.awaited).key = s.key
      AND NOT r.giving_up AND r.ready_at > (SELECT clock_timestamp())
    LIMIT 1
) awaited
WHERE s.sent_in >= $1::text::xid8 AND s.delivered_at IS NULL AND NOT s.expired
  AND s.kept_until > (SELECT clock_timestamp())
ORDER BY 1, 2
