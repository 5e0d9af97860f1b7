-- Records the limit of a saga.
-- Locks: the new row of run_limit.
-- $1 the name of the saga, $2 all its names, $3 how many of its runs are executed at once, $4 what the keys come from, null
-- without keys
INSERT INTO scoop.run_limit (saga, handlers, concurrency, key_from) VALUES ($1, $2, $3, $4)
