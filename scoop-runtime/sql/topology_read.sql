-- Which workers live, since when, and which definitions do they have? And what is paused, which sagas have limits for claims,
-- and which topics have sagas whose queue is limited, in each row the same: of one snapshot with the topology, so that a claim
-- that names it follows these pauses and limits.
-- Locks: nothing.
SELECT w.id, w.topology, w.acknowledged, w.started_at, w.topics, w.handlers, w.definitions,
       (SELECT jsonb_agg(jsonb_build_array(p.kind, p.covers)) FROM scoop.paused p) AS paused,
       (SELECT jsonb_agg(jsonb_build_array(l.saga, l.handlers, l.key_from)) FROM scoop.run_limit l
        WHERE l.concurrency IS NOT NULL OR l.rate IS NOT NULL) AS limits,
       (SELECT jsonb_agg(jsonb_build_array(t.topic, t.saga)) FROM scoop.limited_topic t) AS limited_topics
FROM scoop.worker w
