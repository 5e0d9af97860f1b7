-- The unfinished runs of messages that a run has launched, and that it does not wait for any more, before its rollback undoes these.
-- Locks: nothing.
-- $1 root, $2 the messages
SELECT c.message_id, c.lineage, c.giving_up, extract(epoch FROM clock_timestamp() - c.last_event_at)::float8 AS rests
FROM scoop.run c
WHERE c.root = $1 AND c.parent IS NULL AND c.message_id = ANY ($2) AND c.state NOT IN ('ended', 'failed')
ORDER BY c.id
