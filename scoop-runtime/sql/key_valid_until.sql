-- Until when is the unique key of a message kept, whose hierarchy was deleted? No row if it is not kept.
-- Locks: nothing.
-- $1 the message
SELECT k.until FROM scoop.kept_key k WHERE k.message_id = $1
