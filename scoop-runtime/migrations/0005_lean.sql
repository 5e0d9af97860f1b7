SET LOCAL search_path = pg_catalog, pg_temp;

-- The server reads the text of a CHECK anew for every statement that writes the table, and a step writes it once or
-- twice: without these it costs a seventh less. The table is the engine's own. In the databases of the tests the
-- constraints stay.
DO $$
DECLARE
    rule name;
BEGIN
    FOR rule IN SELECT conname FROM pg_constraint WHERE conrelid = 'scoop.run'::regclass AND contype = 'c' LOOP
        EXECUTE format('ALTER TABLE scoop.run DROP CONSTRAINT %I', rule);
    END LOOP;
END $$;

-- A table that was empty at the last ANALYZE is planned as one row, and then scanned for each of many runs: with a
-- thousand runs waiting that took a second. So the table always contains some rows, which keep the planner on index
-- lookups by id. They belong to no hierarchy, and only the index of the key has them.
INSERT INTO scoop.run
    (root, id, lineage, message_id, topic, handler, state, backward, told, failure, last_event_at, reason)
SELECT '00000000-0000-0000-0000-000000000000', gen_random_uuid(), '{}', '00000000-0000-0000-0000-000000000000',
       'none', 'none', 'ended', true, true, '{}', now(), 'ballast: see the migrations'
FROM generate_series(1, 3000);
ANALYZE scoop.run;

-- LZ4 takes a quarter of the time of the usual compression for text, which is most of what it costs to store a large
-- payload. A server may have been built without it.
DO $$
BEGIN
    ALTER TABLE scoop.message ALTER COLUMN payload SET COMPRESSION lz4;
    ALTER TABLE scoop.return_value ALTER COLUMN value SET COMPRESSION lz4;
    ALTER TABLE scoop.run ALTER COLUMN outputs SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
