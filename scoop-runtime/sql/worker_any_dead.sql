-- Checks whether another worker is dead. This costs next to nothing where all live.
-- Locks: the advisory locks of the dead, for the moment.
-- $1 the asking worker
SELECT EXISTS (
    SELECT FROM scoop.worker w WHERE w.id <> $1 AND scoop.is_gone(w.lock_key, w.backend, w.backend_since, w.role)
)
