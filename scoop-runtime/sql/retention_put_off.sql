-- Puts off a hierarchy whose deletion or archive failed, and returns its topic: see `0009_retention.sql`.
-- Locks: its row of kept_hierarchy, and the rows of the runs of its first message.
-- $1 the root, $2 the error, $3 after how many seconds to look at it again
SELECT scoop.retention_put_off($1, $2, $3)
