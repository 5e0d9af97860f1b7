-- Returns the waiting message of these sagas whose time is over first: its saga and key, and in how many seconds; negative
-- if that is past.
-- Locks: nothing.
-- $1 sagas
SELECT o.saga::text, o.key::text, extract(epoch FROM o.expires_at - clock_timestamp())::float8 AS seconds
FROM unnest($1::text[]) AS s (saga)
CROSS JOIN LATERAL (
    SELECT j.saga, j.key, j.expires_at FROM scoop.join_member j
    WHERE j.saga = s.saga AND j.joined IS NULL AND j.expires_at IS NOT NULL
    ORDER BY j.expires_at
    LIMIT 1
) o
ORDER BY o.expires_at
LIMIT 1
