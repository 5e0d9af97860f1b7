-- Records a signal for a role that may not write the table: see `0007_launches.sql`. Returns whether it is new.
-- Locks: as signal_insert.sql.
-- $1 id, $2 name, $3 key, $4 payload, $5 for how many seconds it is kept, $6 the span that sends it, or null
SELECT scoop.send_signal($1, $2, $3, $4, $5, $6)
