-- How many processes are alive?
-- Locks: the advisory locks of the dead, until the end of the transaction: none of them comes back.
SELECT count(*) FROM scoop.worker w WHERE NOT pg_try_advisory_xact_lock(w.lock_key)
