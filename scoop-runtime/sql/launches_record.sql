-- Records on which topics steps have launched messages.
-- Locks: the new rows of launches, and those that are declared only.
-- $1 sagas, $2 steps and $3 topics (triples)
INSERT INTO scoop.launches (saga, step, topic, seen_at)
SELECT seen.saga, seen.step, seen.topic, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[]) AS seen (saga, step, topic)
ORDER BY 1, 2, 3
ON CONFLICT (saga, step, topic) DO UPDATE SET seen_at = excluded.seen_at
WHERE scoop.launches.seen_at IS NULL
