-- Passes the runs that began to another name of their saga. None is parked then.
-- Locks: their rows of rate_window.
-- $1 the name so far, $2 the newest name
UPDATE scoop.rate_window w SET saga = $2, has_parked = false WHERE w.saga = $1
