-- Deletes those of these hierarchies that are due, puts the others off, and returns what became of each: see
-- `0009_retention.sql`.
-- Locks: the row of retention; of each hierarchy its advisory lock and the rows of its messages, without waiting for these.
-- $1 my worker, $2 for how many seconds committed hierarchies are kept, $3 others, $4 the roots, $5 those that are archived;
-- null if my worker has no archive, $6 whether they are the last ones, $7 after how many seconds to look again at one that is
-- not archived
SELECT s.verdict, s.message_count, s.event_count FROM scoop.retention_settle($1, $2, $3, $4, $5, $6, $7) s
