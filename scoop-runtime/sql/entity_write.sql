-- Writes new states of entities and the events that led to them. The transaction holds the rows of the entities.
-- They are inserted again rather than updated, so that each is found by its key with any statistics.
-- Locks: nothing more.
-- Arrays with an element for each entity: $1 name, $2 key, $3 version, $4 state
-- Arrays with an element for each event: $5 name, $6 key, $7 version, $8 message, $9 run
WITH changed AS (
    INSERT INTO scoop.entity (name, key, version, state)
    SELECT c.name, c.key, c.version, c.state
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::jsonb[]) AS c (name, key, version, state)
    ON CONFLICT (name, key) DO UPDATE SET version = excluded.version, state = excluded.state
)
INSERT INTO scoop.entity_event (name, key, version, message_id, run)
SELECT e.name, e.key, e.version, e.message, e.run
FROM unnest($5::text[], $6::text[], $7::bigint[], $8::uuid[], $9::uuid[]) AS e (name, key, version, message, run)
