-- Records what a claim has done: the runs that it has taken, the keys of which it has parked runs, and since when runs that have returned
-- are ready. It follows in the same transaction.
-- The first number in an empty table is the time in microseconds: so no process takes it for a row that it knows.
-- Locks: nothing.
-- $1 saga, $2 number of the newest row, null if there is none, $3 roots and $4 ids of runs, $5 keys, $6 the queue time of the first parked
-- run of the key, and $7 since when returned runs are ready (quintuples): one of them for each row
INSERT INTO scoop.limit_log (saga, number, root, run, key, parked_since, ready_at)
SELECT $1, coalesce($2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) + done.nth, done.root, done.run, done.key,
       done.parked_since, done.ready_at
FROM unnest($3::uuid[], $4::uuid[], $5::text[], $6::timestamptz[], $7::timestamptz[])
    WITH ORDINALITY AS done (root, run, key, parked_since, ready_at, nth)
RETURNING number
