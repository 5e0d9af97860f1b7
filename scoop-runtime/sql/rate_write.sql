-- Records for keys of a saga the runs that began in the last period. It follows limit_lock.sql in its transaction.
-- Locks: the rows of rate_window.
-- $1 the saga, $2 keys, $3 the runs that began, $4 whether runs are parked until the rate admits them, $5 the times from which the next
-- run may begin, and $6 from which none of these runs counts, both in microseconds since 1970 (of each key)
INSERT INTO scoop.rate_window AS w (saga, key, begun, has_parked, opens_at, idle_at)
SELECT $1, v.key, v.begun, v.has_parked, '1970-01-01Z'::timestamptz + v.opens_at * interval '1 microsecond',
       '1970-01-01Z'::timestamptz + v.idle_at * interval '1 microsecond'
FROM unnest($2::text[], $3::jsonb[], $4::boolean[], $5::bigint[], $6::bigint[])
    AS v (key, begun, has_parked, opens_at, idle_at)
ON CONFLICT (saga, key) DO UPDATE
SET begun = excluded.begun, has_parked = excluded.has_parked, opens_at = excluded.opens_at, idle_at = excluded.idle_at
