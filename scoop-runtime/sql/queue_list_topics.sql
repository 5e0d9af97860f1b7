-- The topics whose sagas have queues with a limit, with these sagas. A client reads them once a second at most,
-- while it launches.
-- Locks: nothing.
SELECT t.topic::text, t.saga::text FROM scoop.limited_topic t ORDER BY 1, 2
