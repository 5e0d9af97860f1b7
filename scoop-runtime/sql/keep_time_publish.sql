-- Records for how long finished hierarchies are kept, by the topics and handlers of a program.
-- Locks: the new and the changed rows of keep_time.
-- $1 topics, $2 handlers, $3 for how many seconds committed hierarchies are kept, $4 others
INSERT INTO scoop.keep_time AS known (topic, handler, committed, rolled_back)
SELECT mine.* FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[]) AS mine (topic, handler, committed, rolled_back)
ORDER BY mine.topic, mine.handler
ON CONFLICT (topic, handler) DO UPDATE SET committed = excluded.committed, rolled_back = excluded.rolled_back
WHERE (known.committed, known.rolled_back) IS DISTINCT FROM (excluded.committed, excluded.rolled_back)
