-- Which unfinished runs are below a run, the nearest first? Goes on below those that wait for children.
-- Locks: nothing.
-- $1 root, $2 id, $3 how many at most
WITH RECURSIVE below AS (
    SELECT r.id, r.state FROM scoop.run r
    WHERE r.root = $1 AND r.parent = $2 AND r.state::text NOT IN ('ended', 'failed')
    UNION
    SELECT child.id, child.state
    FROM below
    CROSS JOIN LATERAL (
        SELECT r.id, r.state FROM scoop.run r
        WHERE r.root = $1 AND r.parent = below.id AND r.state::text NOT IN ('ended', 'failed')
        OFFSET 0
    ) child
    WHERE below.state = 'waiting'
)
SELECT u.root, u.id, u.parent, u.message_id, u.topic, u.handler, u.phase, u.since, u.waits_for, u.ready_at,
       u.attempts, u.retries, left(u.reason, 10000) AS reason, u.rolling_back,
       scoop.can_give_up(u.giving_up, u.rollback_since) AS can_give_up,
       scoop.shown_failure(u.latest_failure) AS failure, u.give_up_at, u.owner, u.signal, u.signal_key, u.step
FROM (SELECT below.id FROM below LIMIT $3) nearest
CROSS JOIN LATERAL (
    SELECT u.* FROM scoop.unfinished_run u WHERE u.root = $1 AND u.id = nearest.id OFFSET 0
) u
