-- How large are the working set and the record?
-- How many runs are stuck, how many are failed, and how many hierarchies could not be deleted?
-- The number of rows and the sizes are those of the server's statistics and files, which cost the same at any size. Of
-- stuck runs, of failed ones, and of hierarchies, it counts no more than 1,000, from an index that begins with
-- these.
-- Locks: nothing.
SELECT greatest(pg_stat_get_live_tuples('scoop.run'::regclass) - 3000, 0) AS unfinished_runs,  -- without the ballast
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE scoop.rare_kind(r.state, r.tries, r.context) = 'stuck' LIMIT 1000
       ) few) AS stuck_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE scoop.rare_kind(r.state, r.tries, r.context) = 'failed' LIMIT 1000
       ) few) AS failed_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.kept_hierarchy k WHERE (k.failures > 0) IS TRUE LIMIT 1000
       ) few) AS undeletable,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
