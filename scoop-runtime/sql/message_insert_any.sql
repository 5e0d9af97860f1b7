-- Launches messages under conditions, in a transaction of any session: see `0007_launches.sql`.
-- $1 the messages: an array of objects
SELECT launched, handlers, refused, refused_type FROM scoop.launch($1)
