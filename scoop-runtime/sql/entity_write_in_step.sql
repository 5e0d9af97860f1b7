-- Writes the version of an entity whose state is in a table of the user, and the events that led to it. The transaction,
-- one of the user, holds the row of the entity.
-- Locks: nothing more.
-- $1 name, $2 key, $3 version
-- Arrays with an element for each event: $4 version, $5 message, $6 run
WITH changed AS (
    INSERT INTO scoop.entity (name, key, version) VALUES ($1, $2, $3)
    ON CONFLICT (name, key) DO UPDATE SET version = excluded.version
)
INSERT INTO scoop.entity_event (name, key, version, message_id, run)
SELECT $1, $2, e.version, e.message, e.run
FROM unnest($4::pg_catalog.int8[], $5::pg_catalog.uuid[], $6::pg_catalog.uuid[]) AS e (version, message, run)
