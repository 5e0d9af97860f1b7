-- How large are the working set and the record?
-- How many runs are stuck, how many await an operator after a failed repair, and how many hierarchies could not be deleted?
-- Runs whose rollback failed for the first time are not in the working set: see rollback_failure_count.sql.
-- The number of rows and the sizes are those of the server's statistics and files, which cost the same at any size. Of
-- stuck runs, and of hierarchies, it counts no more than 1,000, from an index that begins with these.
-- Locks: nothing.
SELECT greatest(pg_stat_get_live_tuples('scoop.run'::regclass) - 3000, 0) AS unfinished_runs,  -- without the ballast
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'stuck' AND NOT r.awaits_operator AND r.ready_at >= '-infinity' LIMIT 1000
       ) few) AS stuck_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'stuck' AND r.awaits_operator AND r.ready_at >= '-infinity' LIMIT 1000
       ) few) AS failed_rollbacks,
       (SELECT count(*) FROM (
           SELECT FROM scoop.kept_hierarchy k WHERE k.topic = '' AND k.kind = 'undeletable' LIMIT 1000
       ) few) AS undeletable,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
