-- What is known of an unfinished run, its place in its queue, the limit and the pauses that cover it, and the number of its
-- unfinished children? Counts end at $3.
-- Locks: nothing.
-- $1 root, $2 id, $3 the maximum of a count, $4 the maximum of the runs that count for its limit
SELECT {unfinished_shown},
       u.giving_up, (u.suspended).wait,
       CASE WHEN u.giving_up AND u.rollback_since IS NULL THEN (
           -- by each id of the lineage: other runs of the hierarchy may have many cancellations
           SELECT count(*) FROM unnest(u.lineage) AS own (id)
           CROSS JOIN LATERAL (
               SELECT FROM scoop.message_event e
               WHERE e.type = 'CANCELLATION_REQUESTED' AND e.cooperation_lineage[1] = u.root
                 AND scoop.run_id(e.cooperation_lineage) = own.id
               OFFSET 0
           ) e
       ) > 0 ELSE false END AS cancelled,
       u.reserved_for, scoop.is_suspect(u.tries) AS is_suspect,
       scoop.priority_of(u.context) AS priority,
       CASE WHEN u.waits_for = 'limit' AND u.parked_since IS NOT NULL THEN (
           SELECT count(*) FROM (
               SELECT FROM (VALUES (1), (0), (-1)) AS level (priority)
               CROSS JOIN LATERAL (
                   SELECT FROM scoop.run q
                   WHERE q.state::text = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                     AND q.reserved_for = u.reserved_for AND q.limit_key = u.limit_key AND q.parked_since IS NOT NULL
                     AND scoop.priority_of(q.context) = level.priority
                     AND q.parked_since < scoop.queue_time(u.parked_since, scoop.priority_of(u.context) - level.priority)
                   LIMIT $3) q
               LIMIT $3) q
       ) WHEN u.waits_for IN ('slot', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM (VALUES (1), (0), (-1)) AS level (priority)
               CROSS JOIN LATERAL (
                   SELECT FROM scoop.run q
                   WHERE q.state = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                     AND q.reserved_for = u.reserved_for AND scoop.priority_of(q.context) = level.priority
                     AND q.ready_at < scoop.queue_time(u.ready_at, scoop.priority_of(u.context) - level.priority)
                     AND q.ready_at <= (SELECT clock_timestamp())
                   LIMIT $3) q
               LIMIT $3) q
       ) ELSE 0 END AS ahead,
       CASE WHEN u.waits_for = 'limit' AND u.parked_since IS NOT NULL THEN (
           SELECT count(*) FROM (
               SELECT FROM scoop.run q
               WHERE q.state::text = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                 AND q.reserved_for = u.reserved_for AND q.limit_key = u.limit_key AND q.parked_since IS NOT NULL
               LIMIT $3) q
       ) WHEN u.waits_for IN ('slot', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM (VALUES (1), (0), (-1)) AS level (priority)
               CROSS JOIN LATERAL (
                   SELECT FROM scoop.run q
                   WHERE q.state = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                     AND q.reserved_for = u.reserved_for AND scoop.priority_of(q.context) = level.priority
                     AND q.ready_at <= (SELECT clock_timestamp())
                   LIMIT $3) q
               LIMIT $3) q
       ) ELSE 0 END AS queued,
       scoop.pauses_of(u.handler, u.topic, scoop.is_new(u.began_at, u.rollback_requested, u.giving_up, u.root, u.lineage)) AS pauses,
       l.concurrency, l.concurrency_by_key, l.serial, l.rate, l.rate_period_ms, l.rate_by_key, l.key_from::text, u.limit_key::text,
       (SELECT w.opens_at FROM scoop.rate_window w
        WHERE w.saga = l.saga AND w.key = CASE WHEN l.rate_by_key THEN u.limit_key ELSE '' END
          AND w.opens_at > clock_timestamp()) AS opens_at,
       -- the phase of each behind its id
       ARRAY(
           SELECT h.id || ' ' || h.phase FROM (
               SELECT h.id, scoop.phase(h) AS phase FROM scoop.run h
               WHERE h.state = ANY (CASE WHEN l.serial THEN '{running,waiting,stuck,failed}' ELSE '{running}' END::scoop.run_state[])
                 AND h.state <> 'ended' AND h.handler = ANY (l.handlers) AND l.concurrency IS NOT NULL AND h.id >= '00000000-0000-0000-0000-000000000000'
                 AND (NOT l.concurrency_by_key OR h.limit_key = u.limit_key)
               UNION ALL
               SELECT h.id, scoop.phase(h) FROM scoop.run h
               WHERE l.serial AND h.handler::text = ANY (l.handlers)
                 AND scoop.rare_kind(h.state, h.tries, h.context, h.limit_key, h.parked_since) IN ('suspect', 'prioritized', 'keyed')
                 AND scoop.held_key(h.state, h.limit_key, h.parked_since) = u.limit_key
               LIMIT $4) h
           ORDER BY h.id
       ) AS holders,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run c
           WHERE c.root = u.root AND c.parent = u.id AND c.state::text NOT IN ('ended', 'failed')
           LIMIT $3) c) AS children
FROM scoop.unfinished_run u
LEFT JOIN scoop.run_limit l ON l.saga >= '' AND u.handler::text = ANY (l.handlers) AND u.waits_for = 'limit'
WHERE u.root = $1 AND u.id = $2
