-- What is known of an unfinished run, its place in its queue, the pauses that cover it, and the number of its unfinished children? Counts end at $3.
-- Locks: nothing.
-- $1 root, $2 id, $3 the maximum of a count
SELECT u.root, u.id, u.parent, u.message_id, u.topic, u.handler, u.phase, u.since, u.waits_for, u.ready_at,
       u.attempts, u.retries, u.reason, u.rolling_back, coalesce(u.rollback_failure, u.failure) AS failure,
       u.give_up_at, u.owner, u.signal, u.signal_key, u.step,
       u.giving_up, u.reserved_for, scoop.is_suspect(u.doubts, u.attempts, u.retries) AS is_suspect,
       CASE WHEN u.waits_for IN ('slot', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM scoop.run q
               WHERE q.state = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                 AND q.reserved_for = u.reserved_for AND q.ready_at < u.ready_at
               LIMIT $3) q
       ) ELSE 0 END AS ahead,
       CASE WHEN u.waits_for IN ('slot', 'limit') THEN (
           SELECT count(*) FROM (
               SELECT FROM scoop.run q
               WHERE q.state = 'ready' AND q.handler = u.handler AND q.topic = u.topic
                 AND q.reserved_for = u.reserved_for AND q.ready_at <= clock_timestamp()
               LIMIT $3) q
       ) ELSE 0 END AS queued,
       scoop.pauses_of(u.handler, u.topic) AS pauses,
       CASE WHEN u.waits_for = 'limit' THEN (
           SELECT l.concurrency FROM scoop.run_limit l WHERE l.saga >= '' AND u.handler::text = ANY (l.handlers)
       ) END AS concurrency,
       (SELECT count(*) FROM (
           SELECT FROM scoop.run c
           WHERE c.root = u.root AND c.parent = u.id AND c.state::text <> 'ended'
           LIMIT $3) c) AS children
FROM scoop.unfinished_run u
WHERE u.root = $1 AND u.id = $2
