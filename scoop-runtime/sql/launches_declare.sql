-- Records on which topics the steps of these sagas declare to launch messages, in place of what they have declared before.
-- Locks: the rows of launches that change.
-- $1 sagas; $2 sagas, $3 steps and $4 topics of their declarations (triples)
WITH declaration AS MATERIALIZED (
    SELECT saga, step, topic FROM unnest($2::text[], $3::text[], $4::text[]) AS declared (saga, step, topic)
),
withdrawn AS MATERIALIZED (
    SELECT l.saga, l.step, l.topic, l.seen_at FROM scoop.launches l
    WHERE l.saga = ANY ($1) AND l.declared
      AND (l.saga, l.step, l.topic) NOT IN (SELECT saga, step, topic FROM declaration)
    ORDER BY l.saga, l.step, l.topic
    FOR UPDATE
),
deleted AS (
    DELETE FROM scoop.launches l USING withdrawn w
    WHERE (l.saga, l.step, l.topic) = (w.saga, w.step, w.topic) AND w.seen_at IS NULL
),
changed AS (
    UPDATE scoop.launches l SET declared = false FROM withdrawn w
    WHERE (l.saga, l.step, l.topic) = (w.saga, w.step, w.topic) AND w.seen_at IS NOT NULL
)
INSERT INTO scoop.launches (saga, step, topic, declared)
SELECT saga, step, topic, true FROM declaration
ORDER BY saga, step, topic
ON CONFLICT (saga, step, topic) DO UPDATE SET declared = true
WHERE NOT scoop.launches.declared
