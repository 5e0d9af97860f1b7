-- Setup of the ceilings: the protocol's own tables, with ready runs whose ids follow from a number. The rows
-- have the widths of real ones. Of the engine only its tables are used.

-- The ids of a hierarchy: 0 to 6 are messages, 8 to 14 the runs that handle them, and 15 is its root.
CREATE FUNCTION key(kind int, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(n * 16 + kind), 32, '0')::uuid
$$;

-- The ids of its events.
CREATE FUNCTION event(nth bigint, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT lpad(to_hex(n * 128 + nth), 32, '0')::uuid
$$;

CREATE FUNCTION worker() RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'scoop-rs:01980000-0000-7000-8000-000000000001'
$$;

CREATE FUNCTION owner() RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
    SELECT '01980000-0000-7000-8000-000000000001'::uuid
$$;

-- Creates so many ready runs for each of so many clients, numbered from client * 1000000 on.
CREATE FUNCTION make_ready(clients int, count int) RETURNS void LANGUAGE sql AS $$
    INSERT INTO scoop.message (id, topic, payload)
    SELECT key(0, c * 1000000 + n), 'bench.tree', '{"n": 1, "fails": false}'
    FROM generate_series(0, clients - 1) c, generate_series(1, count) n;
    INSERT INTO scoop.message_event (id, message_id, type, cooperation_lineage)
    SELECT event(0, c * 1000000 + n), key(0, c * 1000000 + n), 'EMITTED', ARRAY[key(15, c * 1000000 + n)]
    FROM generate_series(0, clients - 1) c, generate_series(1, count) n;
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
    SELECT key(15, c * 1000000 + n), key(8, c * 1000000 + n), ARRAY[key(15, c * 1000000 + n), key(8, c * 1000000 + n)],
           key(0, c * 1000000 + n), 'bench.tree', 'tree', clock_timestamp()
    FROM generate_series(0, clients - 1) c, generate_series(1, count) n;
$$;
