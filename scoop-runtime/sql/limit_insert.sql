-- Records the limit of a saga.
-- Locks: the new row of run_limit.
-- $1 the name of the saga, $2 all its names, $3 how many of its runs are executed at once
INSERT INTO scoop.run_limit (saga, handlers, concurrency) VALUES ($1, $2, $3)
