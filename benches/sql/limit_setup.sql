-- Setup of the pgbench scripts: the least that a saga step needs, in the widths of the real tables.
CREATE TYPE fact AS ENUM ('launched', 'begun', 'done', 'ended', 'turned', 'undone', 'failed', 'asked');

-- The history: a primary key and one index.
CREATE TABLE history (
    id         uuid PRIMARY KEY,
    message    uuid NOT NULL,
    fact       fact NOT NULL,
    handler    text NOT NULL,
    worker     text NOT NULL,
    step       text NOT NULL,
    ancestors  uuid[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    context    jsonb
);
CREATE INDEX history_message ON history (message, created_at);

-- The user's own table.
CREATE TABLE entry (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga bigint NOT NULL,
    step int NOT NULL
);

-- The ready runs. A step leaves its run ready for the next client, so there are always enough.
CREATE TABLE work (
    id         bigint PRIMARY KEY,
    handler    text NOT NULL,
    step       int NOT NULL DEFAULT 0,
    is_ready   boolean NOT NULL DEFAULT true,
    ready_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    message    uuid NOT NULL,
    ancestors  uuid[] NOT NULL,
    context    jsonb
) WITH (fillfactor = 70);

-- The same with 4 kB in each context, and messages of 4 kB.
CREATE TABLE message_4k (id uuid PRIMARY KEY, payload jsonb NOT NULL);
CREATE TABLE work_4k (LIKE work INCLUDING DEFAULTS) WITH (fillfactor = 70);

CREATE FUNCTION noise(bytes int) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT to_jsonb(left(string_agg(md5(random()::text), ''), bytes)) FROM generate_series(1, bytes / 32 + 1)
$$;

INSERT INTO work (id, handler, message, ancestors)
SELECT n, 'handler', gen_random_uuid(), ARRAY[gen_random_uuid(), gen_random_uuid()] FROM generate_series(1, 20000) n;
CREATE INDEX work_ready ON work (ready_at) WHERE is_ready;

INSERT INTO message_4k SELECT gen_random_uuid(), noise(4000 + 0 * n) FROM generate_series(1, 5000) n;
INSERT INTO work_4k (id, handler, message, ancestors, context)
SELECT row_number() OVER (), 'handler', id, ARRAY[gen_random_uuid(), id], jsonb_build_object('ballast', noise(4000))
FROM message_4k;
ALTER TABLE work_4k ADD PRIMARY KEY (id);
CREATE INDEX work_4k_ready ON work_4k (ready_at) WHERE is_ready;


-- The history with the columns and indexes of our table of events.
CREATE TABLE history_protocol (LIKE history INCLUDING DEFAULTS);
ALTER TABLE history_protocol ADD PRIMARY KEY (id), ADD exception jsonb, ADD next_step int, ADD handled int;
CREATE INDEX ON history_protocol ((ancestors[cardinality(ancestors)]), created_at);
CREATE UNIQUE INDEX ON history_protocol (message, fact) WHERE fact IN ('launched', 'asked');
CREATE UNIQUE INDEX ON history_protocol (message, handler, fact)
    WHERE fact IN ('begun', 'ended', 'turned', 'undone', 'failed');
CREATE UNIQUE INDEX ON history_protocol ((ancestors[1]), (ancestors[cardinality(ancestors)]), fact)
    WHERE fact IN ('asked', 'failed');
CREATE INDEX ON history_protocol (created_at) WHERE fact = 'failed';

ANALYZE;
