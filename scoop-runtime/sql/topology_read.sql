-- Which workers live, since when, and which definitions do they have? What is paused, which of these sagas have limits for claims,
-- and which topics have sagas whose queue is limited? All of one snapshot, so that a claim that names the topology follows these
-- pauses and limits. Each is a row of its own, since a single value would be too large for a server with many.
--
-- A limit is a row for each of the given names that it has: of several limits that have it, the first. So the rows of other programs
-- cost no more than their lookup.
-- Locks: nothing.
-- $1 names of sagas
SELECT 'worker' AS kind, NULL::text AS name, NULL::text AS of_name, NULL::text AS key_from,
       w.id, w.topology, w.acknowledged, w.started_at, w.topics, w.handlers, w.definitions, false AS new_runs_only
FROM scoop.worker w
UNION ALL
SELECT 'pause', p.covers, p.kind, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, p.new_runs_only
FROM scoop.paused p
UNION ALL
SELECT 'limit', l.saga, l.handler, l.key_from, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false
FROM (
    SELECT DISTINCT ON (own.handler) own.handler, l.saga::text, l.key_from::text
    FROM (SELECT DISTINCT own.handler FROM unnest($1::text[]) AS own (handler)) own
    JOIN (
        scoop.run_limit l CROSS JOIN LATERAL unnest(l.handlers) AS names (handler)
    ) ON names.handler = own.handler
    WHERE l.saga >= '' AND (l.concurrency IS NOT NULL OR l.rate IS NOT NULL)
    ORDER BY own.handler, l.saga
) l
UNION ALL
SELECT 'limited topic', t.topic, t.saga, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false
FROM scoop.limited_topic t
