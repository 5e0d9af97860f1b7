SET LOCAL search_path = pg_catalog, pg_temp;

-- The server reads the text of a CHECK anew for every statement that writes the table, and a step
-- writes it once or twice: without these it costs a seventh less. The table is the engine's own; in
-- the databases of the tests the rules stay.
DO $$
DECLARE
    rule name;
BEGIN
    FOR rule IN SELECT conname FROM pg_constraint WHERE conrelid = 'scoop.run'::regclass AND contype = 'c' LOOP
        EXECUTE format('ALTER TABLE scoop.run DROP CONSTRAINT %I', rule);
    END LOOP;
END $$;

-- The planner takes a table that was empty when it was last analysed for one row, whatever it holds by
-- now, and then reads all of it for each of many runs: with a thousand runs waiting that took a second.
-- So the table always contains some rows: they belong to no hierarchy, are in no index but that of the
-- key, and are as many as make the planner look up runs by their ids.
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
