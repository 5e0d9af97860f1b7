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
           WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'stuck' LIMIT 1000
       ) few) AS stuck_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run r
           WHERE scoop.rare_kind(r.state, r.tries, r.context, r.limit_key, r.parked_since) = 'failed' LIMIT 1000
       ) few) AS failed_runs,
       (SELECT count(*) FROM (
           SELECT FROM scoop.kept_hierarchy k WHERE (k.failures > 0) IS TRUE LIMIT 1000
       ) few) AS undeletable,
       (SELECT count(*) FROM (
           SELECT
           FROM (
               SELECT DISTINCT h.topic, h.handler FROM scoop.handler h WHERE h.retired_at IS NOT NULL AND h.topic >= ''
           ) h
           CROSS JOIN LATERAL (
               SELECT FROM scoop.run r
               WHERE r.state = 'ready' AND r.handler = h.handler AND r.topic = h.topic
                 AND r.give_up_at IS NULL AND NOT r.giving_up
               LIMIT 1000
           ) r
           -- counts, so that each is looked up by index
           WHERE (SELECT count(*) FROM scoop.handler listed
                  WHERE listed.topic = h.topic AND listed.handler = h.handler AND listed.retired_at IS NULL) = 0
             AND (SELECT count(*) FROM scoop.worker w
                  WHERE w.id >= '00000000-0000-0000-0000-000000000000' AND h.handler::text = ANY (w.handlers)) = 0
           LIMIT 1000
       ) few) AS unbounded_waits,
       pg_total_relation_size('scoop.run'::regclass) AS working_set_bytes,
       pg_total_relation_size('scoop.message'::regclass) + pg_total_relation_size('scoop.message_event'::regclass)
           + pg_total_relation_size('scoop.return_value'::regclass) AS record_bytes
