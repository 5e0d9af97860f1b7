-- How large are the working set and the record?
-- How many runs are stuck, how many await an operator, and how many hierarchies could not be deleted?
-- A run awaits an operator after a failed repair, after the repair of another run has restored it, or if it waits for such a run.
-- Runs whose rollback failed for the first time are counted by rollback_failure_count.sql.
-- The number of rows and the sizes are those of the server's statistics and files, which cost the same at any size. Of
-- stuck runs, of those that await an operator, and of hierarchies, it counts no more than 1,000, from an index that begins with
-- these.
-- Locks: nothing.
SELECT greatest(pg_stat_get_live_tuples('scoop.run'::regclass) - 3000, 0) AS unfinished_runs,  -- without the ballast
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.state = 'stuck' AND NOT r.awaits_operator AND r.ready_at >= '-infinity' LIMIT 1000
       ) few) AS stuck_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE r.awaits_operator AND r.handler >= '' LIMIT 1000
       ) few) AS awaiting_operator,
       (SELECT count(*) FROM (
           SELECT FROM scoop.kept_hierarchy k WHERE k.topic = '' AND k.kind = 'undeletable' LIMIT 1000
       ) few) AS undeletable,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
