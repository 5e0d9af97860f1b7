-- Returns the waiting message of these sagas and topics whose time is over first: its saga and key, and in how many
-- seconds; negative if that is past. Messages on a topic that a saga joins no more are not looked at.
-- Locks: nothing.
-- $1 sagas, $2 topics (pairs)
SELECT o.saga::text, o.key::text,
       extract(epoch FROM greatest(o.expires_at, '0001-01-01Z') - clock_timestamp())::float8 AS seconds
FROM unnest($1::text[], $2::text[]) AS s (saga, topic)
CROSS JOIN LATERAL (
    SELECT j.saga, j.key, j.expires_at FROM scoop.join_member j
    WHERE j.saga = s.saga AND j.topic = s.topic AND j.joined IS NULL AND j.expires_at <= '9999-12-31Z'
    ORDER BY j.expires_at
    LIMIT 1
) o
ORDER BY o.expires_at
LIMIT 1
