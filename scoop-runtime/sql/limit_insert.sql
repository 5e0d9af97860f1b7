-- Records the limits of a saga.
-- Locks: the new row of run_limit.
-- $1 the name of the saga, $2 all its names, $3 how many of its runs are executed at once, null without a limit, $4 whether that is by
-- key, $5 how many of its runs begin within a period, null without a limit, $6 that period in milliseconds, $7 whether that is by key,
-- $8 what the keys come from, null without keys, $9 how many of its runs may wait for a worker when one is launched, null without a
-- limit, $10 whether runs are serial
INSERT INTO scoop.run_limit
    (saga, handlers, concurrency, concurrency_by_key, rate, rate_period_ms, rate_by_key, key_from, queue, serial)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
