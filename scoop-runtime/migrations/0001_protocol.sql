SET LOCAL search_path = pg_catalog, pg_temp;

-- The protocol: tables that every participant of structured cooperation reads and writes, in any language. Append-only.
-- Tables, columns, types and unique indexes are fixed by the protocol.

CREATE TYPE scoop.message_event_type AS ENUM (
    'EMITTED', 'SEEN', 'SUSPENDED', 'COMMITTED', 'ROLLING_BACK', 'ROLLBACK_EMITTED',
    'ROLLED_BACK', 'ROLLBACK_FAILED', 'CANCELLATION_REQUESTED'
);

-- A version 7 UUID: 48 bits of milliseconds, then random bits. Good for the locality of an index; no ordering key,
-- since ids of one millisecond come in any order.
CREATE FUNCTION scoop.gen_uuid_v7() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
            PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
            FROM 1 FOR 6),
        52, 1), 53, 1),
    'hex')::uuid;

CREATE TABLE scoop.message (
    id         uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    topic      varchar(63) NOT NULL,
    payload    jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE scoop.message_event (
    id                   uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    message_id           uuid NOT NULL REFERENCES scoop.message (id),
    type                 scoop.message_event_type NOT NULL,
    coroutine_name       varchar(255),
    coroutine_identifier varchar(255),
    step                 varchar(255),
    cooperation_lineage  uuid[] NOT NULL DEFAULT '{}',
    created_at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    exception            jsonb,
    context              jsonb,
    next_step            int,  -- the position that followed in the list of steps at that time: information for readers
    child_failure_handler_iteration int,
    -- ours: the step that was chosen to run next, null for the one that follows; or where in a long history a part of
    -- the rollback is
    jump                 text,
    definition           int,  -- ours: under which definition the step completed, see 0002_working_set.sql
    -- A message is emitted, and a hierarchy cancelled, at its root; everything else is about a run below.
    CONSTRAINT lineage_is_complete CHECK (
        array_ndims(cooperation_lineage) = 1 AND array_lower(cooperation_lineage, 1) = 1 AND
        array_position(cooperation_lineage, NULL) IS NULL
        AND cardinality(cooperation_lineage)
            >= CASE WHEN type IN ('EMITTED', 'ROLLBACK_EMITTED', 'CANCELLATION_REQUESTED') THEN 1 ELSE 2 END
    )
);

CREATE UNIQUE INDEX unique_emitted_msg ON scoop.message_event (message_id, type)
    WHERE type = 'EMITTED';
CREATE UNIQUE INDEX unique_rollback_emitted_msg ON scoop.message_event (message_id, type)
    WHERE type = 'ROLLBACK_EMITTED';
CREATE UNIQUE INDEX unique_seen_handler_msg ON scoop.message_event (coroutine_name, message_id, type)
    WHERE type = 'SEEN';
CREATE UNIQUE INDEX unique_rolling_back_handler_msg ON scoop.message_event (coroutine_name, message_id, type)
    WHERE type = 'ROLLING_BACK';
CREATE UNIQUE INDEX one_commit ON scoop.message_event (coroutine_name, message_id, type)
    WHERE type = 'COMMITTED';
CREATE UNIQUE INDEX one_rollback_result ON scoop.message_event (coroutine_name, message_id, type)
    WHERE type IN ('ROLLED_BACK', 'ROLLBACK_FAILED');
-- The ids of the hierarchy and of the run stand for the lineage, which an index could hold of up to some 160 levels.
CREATE UNIQUE INDEX one_cancellation_request ON scoop.message_event
    ((cooperation_lineage[1]), (cooperation_lineage[cardinality(cooperation_lineage)]))
    WHERE type = 'CANCELLATION_REQUESTED';

-- Two more indexes, which are ours. A rollback reads all rows of one run (its id is the last of the lineage), and needs
-- the handlers of each message that the run launched.
CREATE INDEX message_event_run ON scoop.message_event
    ((cooperation_lineage[cardinality(cooperation_lineage)]), created_at);
CREATE INDEX message_event_seen ON scoop.message_event (message_id) WHERE type = 'SEEN';

CREATE TABLE scoop.return_value (
    id                  uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    cooperation_lineage uuid[] NOT NULL,
    handler_name        varchar(255) NOT NULL,
    variable_name       varchar(255) COLLATE "C" NOT NULL,  -- so that outputs of a step are in the order of their numbers
    value               jsonb NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE UNIQUE INDEX unique_return_value_per_lineage_handler_variable
    ON scoop.return_value
        ((cooperation_lineage[cardinality(cooperation_lineage)]), handler_name, variable_name);
