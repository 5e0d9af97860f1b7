-- The sagas with ended runs of the outcome `k.outcome`, by name. Each round reads 16 entries of the index of ends after the last known
-- name, and takes their names. So a saga costs one round at most, however many runs it has.
WITH RECURSIVE walked (names) AS (
    SELECT array_agg(DISTINCT first.name ORDER BY first.name)
    FROM (
        SELECT r.handler AS name FROM scoop.ended_run r
        WHERE r.outcome = k.outcome
        ORDER BY r.handler LIMIT 16
    ) first
    UNION ALL
    SELECT next.names
    FROM walked w
    CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT following.name ORDER BY following.name) AS names
        FROM (
            SELECT r.handler AS name FROM scoop.ended_run r
            WHERE r.outcome = k.outcome AND r.handler > w.names[cardinality(w.names)]
            ORDER BY r.handler LIMIT 16
        ) following
    ) next
    WHERE w.names IS NOT NULL
)
SELECT n.name::text AS handler FROM walked w CROSS JOIN LATERAL unnest(w.names) AS n (name)
