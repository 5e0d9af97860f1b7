-- Which workers live, since when, and which definitions do they have? And what is paused, and which sagas have limits, in each
-- row the same: of one snapshot with the topology, so that a claim that names it follows these pauses and limits.
-- Locks: nothing.
SELECT w.id, w.topology, w.acknowledged, w.started_at, w.topics, w.handlers, w.definitions,
       (SELECT jsonb_agg(jsonb_build_array(p.kind, p.covers)) FROM scoop.paused p) AS paused,
       (SELECT jsonb_agg(jsonb_build_array(l.saga, l.handlers, l.key_from)) FROM scoop.run_limit l) AS limits
FROM scoop.worker w
