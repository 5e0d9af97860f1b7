-- Returns the keys of these sagas and topics with a waiting message whose time is over first, the earliest first: saga and
-- key, and in how many seconds; negative if that is past. They are several, since the earliest may be locked. Messages on a
-- topic that a saga joins no more are not looked at.
-- Locks: nothing.
-- $1 sagas, $2 topics (pairs), $3 how many at most
SELECT o.saga::text, o.key::text,
       extract(epoch FROM greatest(min(o.expires_at), '0001-01-01Z') - clock_timestamp())::float8 AS seconds
FROM unnest($1::text[], $2::text[]) AS s (saga, topic)
CROSS JOIN LATERAL (
    SELECT j.saga, j.key, j.expires_at FROM scoop.join_member j
    WHERE j.saga = s.saga AND j.topic = s.topic AND j.joined IS NULL AND j.refused IS NULL
      AND j.expires_at <= '9999-12-31Z'
    ORDER BY j.expires_at
    LIMIT $3
) o
GROUP BY o.saga, o.key
ORDER BY seconds
LIMIT $3
