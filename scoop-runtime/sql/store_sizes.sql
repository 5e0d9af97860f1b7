-- How large are the working set and the record?
-- How many runs are stuck, how many are failed, and how many hierarchies could not be deleted? For how many is nothing registered that would
-- execute them, nor a deadline that would end them?
-- The number of rows and the sizes are those of the server's statistics and files, which cost the same at any size. Of
-- stuck runs, of failed ones, of those without an end, and of hierarchies, it counts no more than 1,000, from an index that begins with
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
       (SELECT count(*) FROM (
           SELECT FROM scoop.abandoned_queue q
           CROSS JOIN LATERAL (
               SELECT FROM scoop.run r
               WHERE r.state = 'ready' AND r.handler = q.handler AND r.topic = q.topic AND r.reserved_for = q.reserved_for
                 AND r.give_up_at IS NULL AND NOT r.giving_up
               LIMIT 1000
           ) r
           WHERE NOT EXISTS (
               SELECT FROM scoop.handler h WHERE h.topic = q.topic AND h.handler = q.handler AND h.retired_at IS NULL)
           LIMIT 1000
       ) few) AS endless_waits,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
