-- Records a message that a saga joins, once for each run of its collector, if a set can hold it. Returns nothing if the claim
-- of that run does not hold; otherwise whether a set can hold the message, and if none can, its bytes. The caller then launches
-- the set if it is complete (`join_oldest.sql`, `join_mark.sql`).
-- Locks: the new row.
-- $1 hierarchy, $2 run and $3 epoch of the claim, $4 saga, $5 key, $6 topic, $7 message, $8 for how many seconds it waits,
-- null without a limit, $9 how many bytes a set can hold of it, $10 the span that records it, or null
WITH claimed AS MATERIALIZED (
    SELECT r.id,
           -- a set has an object of members around each of them
           coalesce((
               SELECT scoop.is_readable(jsonb_build_array(jsonb_build_array(m.payload)), $9::int)
               FROM scoop.message m WHERE m.id = $7
           ), true) AS is_fit
    FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
),
recorded AS (
    INSERT INTO scoop.join_member (run, saga, key, topic, message_id, traceparent, expires_at)
    SELECT id, $4, $5, $6, $7, $10,
           -- of a null and another time, the other one is the least
           CASE WHEN $8::float8 IS NOT NULL
               THEN least(clock_timestamp() + $8 * interval '1 second', '9999-12-31 00:00+00') END
    FROM claimed
    WHERE is_fit
    ON CONFLICT (run) DO NOTHING
)
SELECT is_fit, CASE WHEN NOT is_fit THEN (
    SELECT octet_length(m.payload::text) FROM scoop.message m WHERE m.id = $7
) END AS bytes
FROM claimed
