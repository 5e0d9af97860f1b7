-- How many runs that are found by fields are unfinished, and how many have ended since a time, by handler and state? Of the newest
-- messages with a value, and of so many runs of their hierarchies. The first row has no handler and says how many messages and how many
-- runs were read.
-- Locks: nothing.
-- $1 the field, $2 its values, $3 and $4 null; $5 of how many messages, nothing for all; $6 the other fields, each with its values; $7 how
-- many runs to read, nothing for all; $8 since when
WITH newest AS MATERIALIZED (
    {found_newest}
),
hierarchy AS MATERIALIZED (
    SELECT DISTINCT n.root FROM newest n
),
of_hierarchies AS MATERIALIZED (
    SELECT every.*
    FROM hierarchy h
    CROSS JOIN LATERAL (
        (SELECT u.root, u.message_id, u.handler, scoop.phase(u) AS phase, scoop.phase_since(u) AS since, false AS ended
         FROM scoop.run u
         WHERE u.root = h.root AND u.state <> 'ended'
         LIMIT $7)
      UNION ALL
        (SELECT r.root, r.message_id, r.handler, CASE r.outcome WHEN 'committed' THEN 'committed' ELSE 'rolled back' END,
                NULL, true
         FROM scoop.ended_run r
         WHERE r.root = h.root AND r.outcome <> 'dropped' AND r.ended_at >= $8
         LIMIT $7)
    ) every
    LIMIT $7
)
SELECT NULL AS handler, NULL AS phase, (SELECT count(*) FROM newest) AS count, NULL::timestamptz AS oldest, false AS ended,
       (SELECT count(*) FROM of_hierarchies) AS read
UNION ALL
SELECT c.* FROM (
    SELECT r.handler::text, r.phase, count(*), min(r.since), r.ended, 0
    FROM of_hierarchies r
    WHERE (r.root IN (SELECT n.found FROM newest n) OR r.message_id IN (SELECT n.found FROM newest n))
      AND {found_others}
    GROUP BY r.handler, r.phase, r.ended
    ORDER BY r.handler, r.phase
) c
