-- Leases places in the queue of a saga, or gives them back: see `0008_queue_limits.sql`.
-- $1 the saga, $2 the holder, $3 how many places it has in use or reserved, $4 the messages that it may have launched, $5 how many
-- places it needs
SELECT most, granted, is_scarce, launched FROM scoop.lease_places($1, $2, $3, $4, $5)
