-- In how many seconds does the rate of a saga admit the next parked run? Null if none is parked.
-- Locks: nothing.
-- $1 the saga
SELECT extract(epoch FROM (
    SELECT greatest('0001-01-01Z', least('9999-12-31Z', w.opens_at)) FROM scoop.rate_window w WHERE w.saga = $1 AND w.has_parked ORDER BY w.opens_at LIMIT 1
) - clock_timestamp())::float8 AS seconds
