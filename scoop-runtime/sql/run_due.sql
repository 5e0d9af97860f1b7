-- In how many seconds is one of my runs ready, or one of all that wait overdue? Negative if it has
-- been for some time; nothing if there is none.
-- Locks: nothing.
-- $1 topics and $2 handlers (pairs)
SELECT extract(epoch FROM least(
    (SELECT min(r.ready_at)
     FROM unnest($1::text[], $2::text[]) AS mine (topic, handler)
     CROSS JOIN LATERAL (
         SELECT r.ready_at
         FROM scoop.run r
         WHERE r.state = 'ready' AND r.handler = mine.handler AND r.topic = mine.topic
         ORDER BY r.ready_at
         LIMIT 1
     ) r),
    (SELECT r.give_up_at
     FROM scoop.run r
     WHERE r.state = 'waiting' AND NOT r.gives_up AND r.give_up_at IS NOT NULL
     ORDER BY r.give_up_at
     LIMIT 1)
) - clock_timestamp())::float8
