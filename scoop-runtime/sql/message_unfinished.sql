-- How far are the runs of a message that are not finished? None may mean that all are, or that
-- nobody handled it; `emitted` says whether there is such a message at all.
-- Locks: nothing.
-- $1 the root, $2 the message
SELECT EXISTS (SELECT FROM scoop.message m WHERE m.id = $2) AS emitted,
       (SELECT count(*) FROM scoop.run r WHERE r.root = $1 AND r.message_id = $2) AS unfinished
