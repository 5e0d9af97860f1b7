-- Records by what messages are found that this transaction has launched: see `0007_launches.sql`.
-- Locks: the new rows.
-- Arrays with an element for each field of a message: $1 the message, $2 the number of the field in it, $3 its name, $4 its value
SELECT scoop.record_found_by($1, $2, $3, $4)
