-- Returns the waiting messages of these sagas and topics whose time is over first, the earliest first. Each with its saga, its
-- key, the run of the collector, the end of its time, and in how many seconds that is; negative if it is past. They are
-- several, since the key of the earliest may be locked; the next call goes on behind the last one. Messages on a topic that a saga joins no more
-- are not looked at.
-- Locks: nothing.
-- $1 sagas, $2 topics (pairs), $3 how many at most, $4 end of the time and $5 run of the last message of the call before
SELECT o.saga::text, o.key::text, o.run, o.expires_at,
       extract(epoch FROM greatest(o.expires_at, '0001-01-01Z') - clock_timestamp())::float8 AS seconds
FROM unnest($1::text[], $2::text[]) AS s (saga, topic)
CROSS JOIN LATERAL (
    SELECT j.saga, j.key, j.run, j.expires_at FROM scoop.join_member j
    WHERE j.saga = s.saga AND j.topic = s.topic AND j.joined IS NULL AND j.refused IS NULL
      AND j.expires_at <= '9999-12-31Z' AND (j.expires_at, j.run) > ($4::timestamptz, $5::uuid)
    ORDER BY j.expires_at, j.run
    LIMIT $3
) o
ORDER BY o.expires_at, o.run
LIMIT $3
