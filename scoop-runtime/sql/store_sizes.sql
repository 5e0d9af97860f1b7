-- How large are the working set and the record, how many runs are stuck, and how many of these await an operator?
-- Runs whose rollback failed for the first time are not in the working set: see rollback_failure_count.sql.
-- The number of rows and the sizes are those of the server's statistics and files, which cost the same at any size. Of
-- stuck runs it counts no more than 1,000, from an index that has only these.
-- Locks: nothing.
SELECT greatest(pg_stat_get_live_tuples('scoop.run'::regclass) - 3000, 0) AS unfinished_runs,  -- without the ballast
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'stuck' AND NOT r.awaits_operator AND r.ready_at >= '-infinity' LIMIT 1000
       ) few) AS stuck_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'stuck' AND r.awaits_operator AND r.ready_at >= '-infinity' LIMIT 1000
       ) few) AS awaiting_operator,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
