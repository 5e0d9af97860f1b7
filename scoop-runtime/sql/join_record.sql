-- Records a message that a saga joins, once for each run of its collector. Returns whether the claim of that run holds.
-- Locks: the new row.
-- $1 hierarchy, $2 run and $3 epoch of the claim, $4 saga, $5 key, $6 topic, $7 message, $8 for how many seconds it waits
WITH claimed AS (
    SELECT r.id FROM scoop.run r
    WHERE r.root = $1 AND r.id = $2 AND r.epoch = $3 AND r.state = 'running'
),
recorded AS (
    INSERT INTO scoop.join_member (run, saga, key, topic, message_id, expires_at)
    SELECT id, $4, $5, $6, $7,
           least(clock_timestamp() + $8::float8 * interval '1 second', '9999-12-31 00:00+00')
    FROM claimed
    ON CONFLICT (run) DO NOTHING
)
SELECT EXISTS (SELECT FROM claimed)
