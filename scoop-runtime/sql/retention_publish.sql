-- Records for how long finished hierarchies are kept, by the topics and handlers of a program.
-- Locks: the new and the changed rows of keep_time.
-- $1 topics, $2 handlers, $3 for how many seconds committed hierarchies are kept, $4 others, $5 the unique keys of launches,
-- $6 whether they are archived before
INSERT INTO scoop.keep_time AS known (topic, handler, committed, rolled_back, keys, is_archived)
SELECT mine.*, $6
FROM unnest($1::text[], $2::text[], $3::float8[], $4::float8[], $5::float8[])
    AS mine (topic, handler, committed, rolled_back, keys)
ORDER BY mine.topic, mine.handler
ON CONFLICT (topic, handler) DO UPDATE SET
    committed = excluded.committed, rolled_back = excluded.rolled_back, keys = excluded.keys,
    is_archived = excluded.is_archived
WHERE (known.committed, known.rolled_back, known.keys, known.is_archived)
    IS DISTINCT FROM (excluded.committed, excluded.rolled_back, excluded.keys, excluded.is_archived)
