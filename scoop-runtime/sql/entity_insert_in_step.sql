-- Makes the row of an entity without an event, or locks the one that another transaction has made meanwhile. Returns its
-- version. In transactions of the user.
-- Locks: the row; waits for another transaction that makes it.
-- $1 name, $2 key
INSERT INTO scoop.entity AS e (name, key) VALUES ($1, $2)
ON CONFLICT (name, key) DO UPDATE SET version = e.version
RETURNING e.version
