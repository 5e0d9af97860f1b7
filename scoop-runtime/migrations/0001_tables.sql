SET LOCAL search_path = pg_catalog, pg_temp;

-- The tables: first the record of what happened, which grows until hierarchies are pruned, then the working set, which
-- stays small.

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

-- The id of a run, or of a hierarchy: the last of its lineage. The planner replaces the call by its text.
CREATE FUNCTION scoop.run_id(lineage uuid[]) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lineage[cardinality(lineage)];

CREATE TABLE scoop.message (
    id         uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    topic      varchar(63) NOT NULL,
    payload    jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE TABLE scoop.message_event (
    id                   uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    message_id           uuid NOT NULL,  -- no foreign key: its lock on the message costs each event a sixth
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
    -- the step that was chosen to run next, null for the one that follows; or where in a long history a part of the
    -- rollback is
    jump                 text,
    definition           int,  -- the definition under which the step completed
    wait                 jsonb  -- what the run waits for after a SUSPENDED, besides its children: until, signal
);
-- Columns whose size readers bound are stored uncompressed, in the tables below, too: the size of a compressed value is known
-- only after it has been read.
ALTER TABLE scoop.message_event
    ALTER COLUMN exception SET STORAGE EXTERNAL,
    ALTER COLUMN wait SET STORAGE EXTERNAL;

-- Few indexes, since every statement that writes an event opens them all. Fencing makes events unique; the unique
-- indexes are a second line of defence, and the audit checks the same. Each serves the lookups of several statements.

-- The events of a run, in their order.
CREATE INDEX message_event_run ON scoop.message_event (scoop.run_id(cooperation_lineage), created_at);

-- The events that a message has once.
CREATE UNIQUE INDEX one_per_message ON scoop.message_event (message_id, type)
    WHERE type IN ('EMITTED', 'ROLLBACK_EMITTED');

-- The events that each handler of a message has once, apart from that of its end: `ended_run` has one row for each run.
CREATE UNIQUE INDEX one_per_handler ON scoop.message_event (message_id, coroutine_name, type)
    WHERE type IN ('SEEN', 'ROLLING_BACK');

-- Cancellations are rare, and have to be found by their hierarchy. The ids of the hierarchy and of the run stand for the
-- lineage, which an index could hold of up to some 160 levels.
CREATE UNIQUE INDEX one_per_run ON scoop.message_event
    ((cooperation_lineage[1]), scoop.run_id(cooperation_lineage))
    WHERE type = 'CANCELLATION_REQUESTED';

CREATE TABLE scoop.return_value (
    id                  uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    cooperation_lineage uuid[] NOT NULL,
    handler_name        varchar(255) NOT NULL,
    variable_name       varchar(255) COLLATE "C" NOT NULL,  -- outputs of a step in the order of their numbers
    value               jsonb NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE UNIQUE INDEX unique_return_value_per_lineage_handler_variable
    ON scoop.return_value
        (scoop.run_id(cooperation_lineage), handler_name, variable_name);

-- The replies of a run, apart from the outputs of its steps: reading them must not cost more for a run of many steps.
CREATE INDEX return_value_reply ON scoop.return_value
    (scoop.run_id(cooperation_lineage), handler_name)
    WHERE variable_name NOT LIKE 'Output of %';

-- All interventions of operators: for failed rollbacks and stuck runs, and signals that they sent to a run.
CREATE TABLE scoop.intervention (
    id           uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    root         uuid NOT NULL,
    run          uuid NOT NULL,  -- the last of the lineage
    handler      varchar(255) NOT NULL,
    message_id   uuid NOT NULL,
    step         varchar(255),  -- the part of the rollback that it is about; none for a run that was stuck, or got a signal
    kind         text NOT NULL CHECK (kind IN ('retry', 'skip', 'resolve', 'signal')),
    reruns_part  boolean NOT NULL DEFAULT false,  -- the part has a SUSPENDED, and is to run again nevertheless
    note         text,
    source       text NOT NULL,  -- the requester
    requested_at timestamptz NOT NULL  -- later than any event of the run before
);
CREATE INDEX intervention_run ON scoop.intervention (run, requested_at, id);
CREATE INDEX intervention_root ON scoop.intervention (root, run);

-- The steps that run at most once, each written before its code runs. A later claim that finds the row before the run has
-- completed another step has the run fail, whichever step the program of that claim has there.
CREATE TABLE scoop.begun_step (
    root     uuid NOT NULL,
    run      uuid NOT NULL,  -- the last of the lineage
    instance int NOT NULL,   -- how many steps the run had completed before
    step     varchar(255) NOT NULL,
    epoch    bigint NOT NULL,  -- of the claim that began it
    begun_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run, instance)
);

-- The executions of runs that continued as new, without the first one of each run. The history that a run works with, and
-- that its rollback undoes, begins with the newest.
CREATE TABLE scoop.execution (
    root        uuid NOT NULL,
    run         uuid NOT NULL,  -- the last of the lineage
    number      int NOT NULL CHECK (number > 0),  -- how many executions there were before
    message_id  uuid NOT NULL,  -- its payload is the message of this execution
    suspensions int NOT NULL,   -- how many SUSPENDED of the forward path there were before
    began_at    timestamptz NOT NULL,  -- the time of the SUSPENDED before it
    PRIMARY KEY (run, number)
);

-- Messages that had no handler when they were launched, and that were delivered later, each at most once. Written
-- by redeliveries only: a launch without a handler leaves no row besides its EMITTED.
CREATE TABLE scoop.redelivery (
    message_id     uuid PRIMARY KEY,
    root           uuid NOT NULL,  -- the hierarchy of the runs: that of the message if it started one, else a new one
    copy           uuid,           -- the message launched in place of one that a run had launched
    redelivered_at timestamptz NOT NULL  -- it went to the handlers registered then
);

-- Signals from outside. One that no run awaits is kept for a while. It is delivered once, to all runs that await it then:
-- as the output of the step that waits.
CREATE TABLE scoop.signal (
    id           uuid PRIMARY KEY,
    name         varchar(255) NOT NULL,
    key          varchar(255) NOT NULL,
    payload      jsonb NOT NULL,
    sent_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    kept_until   timestamptz NOT NULL,
    delivered_at timestamptz,
    reached      int NOT NULL DEFAULT 0,  -- the number of runs
    expired      boolean NOT NULL DEFAULT false,  -- the sweep has found its time to be over
    sent_in      xid8 NOT NULL DEFAULT pg_current_xact_id(),
    traceparent  varchar(55)  -- the span that sent it, by W3C Trace Context
);
-- By the end of their time, so that a lookup begins behind all those whose time is over.
CREATE INDEX signal_kept ON scoop.signal (name, key, kept_until, sent_at, id) WHERE delivered_at IS NULL AND NOT expired;
-- For sweeps. The last condition always holds, and follows from those of the sweeps only: on a table that was empty when it
-- was analysed, the planner would use these indexes in place of the first.
CREATE INDEX signal_sent_in ON scoop.signal (sent_in)
    WHERE delivered_at IS NULL AND NOT expired AND sent_in IS NOT NULL;
CREATE INDEX signal_expiring ON scoop.signal (kept_until) WHERE delivered_at IS NULL AND NOT expired AND reached >= 0;
-- Since when a signal reaches no run any more.
CREATE INDEX signal_over ON scoop.signal ((coalesce(delivered_at, kept_until)));

-- The messages that sagas join, each once for the run of its collector. One that waits is withdrawn when its emitter rolls
-- back. Sets have no rows: a set takes the oldest waiting message of each topic with its key.
CREATE TABLE scoop.join_member (
    run        uuid PRIMARY KEY,  -- of the collector
    saga       varchar(255) NOT NULL,  -- its first name
    key        varchar(255) NOT NULL,
    topic      varchar(63) NOT NULL,
    message_id uuid NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,  -- until when it waits
    joined     uuid,         -- the root of the hierarchy that joins it
    refused    text,         -- why no set can hold it: then it does not wait any more
    traceparent varchar(55)  -- the span that recorded it, by W3C Trace Context
);
CREATE INDEX join_waiting ON scoop.join_member (saga, key, topic, since, run) WHERE joined IS NULL AND refused IS NULL;
CREATE INDEX join_message ON scoop.join_member (message_id);
CREATE INDEX join_due ON scoop.join_member (saga, topic, expires_at, run)
    WHERE joined IS NULL AND refused IS NULL AND expires_at IS NOT NULL;
CREATE INDEX join_joined ON scoop.join_member (joined) WHERE joined IS NOT NULL;

-- The hierarchies whose first message is that of another one, launched again by an operator. A row stays until that other one is
-- deleted, so that it is not launched again by accident.
CREATE TABLE scoop.relaunch (
    root         uuid PRIMARY KEY,
    of_root      uuid NOT NULL,
    note         text NOT NULL,
    source       text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT relaunch_texts_are_short CHECK (octet_length(note) <= 1000000 AND octet_length(source) <= 1000000)
);
CREATE INDEX relaunch_of ON scoop.relaunch (of_root, requested_at);

-- For how long finished hierarchies are kept, in seconds, by the topic of the message that started them. Programs write it for
-- their handlers; of several handlers of a topic, the longest time counts.
CREATE TABLE scoop.keep_time (
    topic       varchar(63) NOT NULL,
    handler     varchar(255) NOT NULL,
    committed   float8 NOT NULL CHECK (committed >= 0),  -- infinity: for ever
    rolled_back float8 NOT NULL CHECK (rolled_back >= 0),
    keys        float8 NOT NULL DEFAULT 0 CHECK (keys >= 0),  -- for how long the unique key of the launch counts
    -- They are deleted only by programs with an archive.
    is_archived boolean NOT NULL DEFAULT false,
    PRIMARY KEY (topic, handler)
);

-- The fields whose values operators do not see, by the stored names of the fields. Programs write it for the messages of their
-- sagas. A row stays when no program says so any more: older values are still there.
CREATE TABLE scoop.redaction (
    topic varchar(63) NOT NULL,
    field text NOT NULL,
    PRIMARY KEY (topic, field)
);

-- The fields by which messages are found, by the stored names of the fields. Programs write it for the messages of their sagas. A row
-- stays when no program says so any more: older values are still there.
CREATE TABLE scoop.find_field (
    topic  varchar(63) NOT NULL,
    name   varchar(63) NOT NULL,
    kind   text NOT NULL CHECK (kind IN ('text', 'number', 'time')),
    number smallint NOT NULL,  -- among the fields of the message
    PRIMARY KEY (topic, name)
);

-- By what messages are found: the values of their fields, of messages that have any. A message that started a hierarchy is found under
-- the id of that, since all runs of the hierarchy are found by its fields; any other one under its own id.
CREATE TABLE scoop.found_by (
    found       uuid NOT NULL,
    name        varchar(63) NOT NULL,
    value       jsonb NOT NULL,  -- a text or a number; a time is a text in UTC
    number      smallint NOT NULL,  -- of the field in the message
    root        uuid NOT NULL,
    launched_at timestamptz NOT NULL,
    PRIMARY KEY (found, name),
    CONSTRAINT found_by_is_short CHECK (
        name <> '' AND octet_length(name) <= 63 AND number BETWEEN 0 AND 7
        AND CASE jsonb_typeof(value) WHEN 'string' THEN octet_length(value #>> '{}') <= 256
                                     WHEN 'number' THEN pg_column_size(value) <= 256 ELSE false END)
);
-- For lists: the newest messages with a value.
CREATE INDEX found_by_value ON scoop.found_by (name, value, launched_at, found) INCLUDE (root);

-- Which worker deletes finished hierarchies: one row.
CREATE TABLE scoop.retention (
    is_only     boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    taken_by    uuid,
    taken_until timestamptz
);
INSERT INTO scoop.retention DEFAULT VALUES;

-- The unique keys of launches whose hierarchies are deleted. The message of the launch is kept as long, without its payload, so
-- that another launch with the key finds it.
CREATE TABLE scoop.kept_key (
    message_id uuid PRIMARY KEY,
    until      timestamptz NOT NULL
);
CREATE INDEX kept_key_until ON scoop.kept_key (until);

-- The hierarchies that the deletion looks at when their time has come: those that it has put off, and those without a handler.
-- It finds all others by the ends of their runs.
CREATE TABLE scoop.kept_hierarchy (
    root     uuid PRIMARY KEY,
    until    timestamptz NOT NULL,
    failures int NOT NULL DEFAULT 0,  -- of its deletion or its archive, one after the other
    error    text                     -- of the last one
);
CREATE INDEX kept_hierarchy_due ON scoop.kept_hierarchy ((failures > 0), until);

-- Entities: the states that follow from their events. One without an event may have a row, with no state.
CREATE TABLE scoop.entity (
    name    varchar(255) COLLATE "C" NOT NULL,
    key     varchar(255) COLLATE "C" NOT NULL,
    version bigint NOT NULL DEFAULT 0 CHECK (version >= 0),  -- the number of its events
    state   jsonb,
    PRIMARY KEY (name, key)
) WITH (fillfactor = 50);  -- a state that changes is updated in place

-- The events of entities: each is a message that the command launched, so that its payload is there.
CREATE TABLE scoop.entity_event (
    name       varchar(255) COLLATE "C" NOT NULL,
    key        varchar(255) COLLATE "C" NOT NULL,
    version    bigint NOT NULL CHECK (version >= 1),  -- that of the entity after it
    message_id uuid NOT NULL,
    run        uuid NOT NULL,  -- of the command
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (name, key, version)
);
-- The messages that stay when their hierarchy is deleted.
CREATE INDEX entity_event_message ON scoop.entity_event (message_id);

-- The working set: the state of the engine beside the record. It stays small with a long history: a run that ended
-- leaves it.

-- Subscriptions of handlers to topics. A handler stays registered while no process of it lives, so that messages
-- emitted meanwhile wait for it. `retired_at` closes an entry; the history is kept. A handler that will not come back
-- can be retired, and its pending runs can be deleted.
CREATE TABLE scoop.handler (
    topic      varchar(63) NOT NULL,
    handler    varchar(255) NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at timestamptz,
    -- runs that were pending then never begin
    dropped_at timestamptz CHECK (dropped_at IS NULL OR retired_at IS NOT NULL),
    was        text[],  -- former names of the saga, which are not registered beside it
    -- The service of the program that has started last with the handler, its build, and when that build did so first; null until a
    -- program has started with it.
    service     varchar(255),
    build       varchar(255),
    build_since timestamptz,
    PRIMARY KEY (topic, handler, since),
    CHECK (num_nulls(build, build_since) IN (0, 2)),
    -- A process reads these rows of all. An empty list has no dimension, hence no bound either.
    CONSTRAINT former_names_are_a_list CHECK (
        array_ndims(was) = 1 AND array_lower(was, 1) = 1 AND array_position(was, NULL) IS NULL
    ),
    CONSTRAINT former_names_are_few CHECK (
        cardinality(was) <= 1000 AND octet_length(array_to_string(was, '')) <= 262144
    )
);
CREATE UNIQUE INDEX handler_listening ON scoop.handler (topic, handler) WHERE retired_at IS NULL;
CREATE INDEX handler_renamed ON scoop.handler (handler) WHERE was IS NOT NULL;
-- For the list of those that are not registered any more.
CREATE INDEX handler_retired ON scoop.handler (topic, handler, retired_at) WHERE retired_at IS NOT NULL;

-- The definitions of sagas. A run refers to the definition under which its newest step completed, so that a
-- program that has another one can determine where to continue.
CREATE TABLE scoop.definition (
    id          int PRIMARY KEY,  -- the next one above all others: no sequence, which copies of the rows would leave behind
    handler     varchar(255) NOT NULL,
    fingerprint uuid NOT NULL,  -- of the steps, and of the types of the message, its replies and what the steps return
    steps       jsonb NOT NULL,  -- in their order, each with its names, its purpose, and its other functions
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (handler, fingerprint)
);

-- Who launches what: the topics on which a step of a saga has launched a message, or declares that it does. A process writes a row
-- when it first sees such a launch. The declarations are those of the newest program that started with the saga. Rows of retired
-- handlers stay.
CREATE TABLE scoop.launches (
    saga     varchar(255) NOT NULL,
    step     varchar(255) NOT NULL,
    topic    varchar(63) NOT NULL,
    declared boolean NOT NULL DEFAULT false,
    seen_at  timestamptz,  -- the first time of a launch; null: declared only
    PRIMARY KEY (saga, step, topic),
    CHECK (declared OR seen_at IS NOT NULL)
);

-- The living processes. Each holds the advisory lock of its row in a session of its own.
CREATE TABLE scoop.worker (
    id         uuid PRIMARY KEY,
    lock_key   bigint NOT NULL,
    backend    int NOT NULL,          -- the process of the server for that session,
    backend_since timestamptz,        -- when it started, if the role may see that,
    role       oid NOT NULL,          -- and the role that opened the session
    topics     text[] NOT NULL,
    handlers   text[] NOT NULL,
    definitions int[] NOT NULL,  -- of each handler the definition that the process has
    started_at timestamptz NOT NULL,  -- of two definitions of a handler, that of the later start is current
    topology   bigint NOT NULL DEFAULT 0,  -- raised when a process or a pause starts or ends, or a limit changes; claims name the value they know
    acknowledged bigint NOT NULL DEFAULT 0,  -- the topology read last while there was a pause: no earlier claim is under way
    service    varchar(255) NOT NULL DEFAULT '',
    build      varchar(255) NOT NULL DEFAULT '',
    kept       text[],  -- the handlers that stay registered although the process does not have them; null: all
    -- Each process reads the rows of all. An empty list has no dimension, hence no bound either.
    CONSTRAINT sagas_are_lists CHECK (
        array_ndims(topics) = 1 AND array_lower(topics, 1) = 1 AND array_ndims(handlers) = 1
        AND array_lower(handlers, 1) = 1 AND array_ndims(definitions) = 1 AND array_lower(definitions, 1) = 1
    ),
    CHECK (array_position(topics || handlers || kept, NULL) IS NULL AND array_position(definitions, NULL) IS NULL),
    CONSTRAINT kept_handlers_are_few CHECK (
        cardinality(kept) <= 100000 AND octet_length(array_to_string(kept, '')) <= 16777216
    ),
    CHECK (cardinality(topics) = cardinality(handlers) AND cardinality(handlers) = cardinality(definitions)),
    CONSTRAINT sagas_are_not_too_many CHECK (
        cardinality(handlers) <= 100000 AND octet_length(array_to_string(topics, '')) <= 16777216
        AND octet_length(array_to_string(handlers, '')) <= 16777216
    )
);

-- What is paused: no worker begins a step of it, and its runs stay in their queues; or, for new runs only, those that scoop.is_new
-- names. The view `paused` has the names of sagas that each row covers. A row whose time is over counts until a worker has deleted it.
CREATE TABLE scoop.pause (
    kind   text NOT NULL CHECK (kind IN ('everything', 'topic', 'handler')),
    name   varchar(255) NOT NULL CHECK ((kind = 'everything') = (name = '')),
    reason text,
    source text NOT NULL,  -- the requester
    since  timestamptz NOT NULL DEFAULT clock_timestamp(),
    until  timestamptz,    -- null: until it is resumed
    new_runs_only boolean NOT NULL DEFAULT false,
    PRIMARY KEY (kind, name),
    -- Programs write at most 1,000 characters of each, and each process reads the rows of all.
    CONSTRAINT texts_are_short CHECK (octet_length(reason) <= 1000000 AND octet_length(source) <= 1000000)
);
CREATE INDEX pause_until ON scoop.pause (until) WHERE until IS NOT NULL;

-- The pauses that have ended: the newest ones, see scoop.trim_ended_pauses.
CREATE TABLE scoop.ended_pause (
    id           uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    kind         text NOT NULL,
    name         varchar(255) NOT NULL,
    reason       text,
    source       text NOT NULL,
    since        timestamptz NOT NULL,
    until        timestamptz,
    ended_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_by     text,  -- the requester; null if its time was over
    ended_reason text,
    new_runs_only boolean NOT NULL DEFAULT false
);
CREATE INDEX ended_pause_at ON scoop.ended_pause (ended_at);

-- The limits of sagas. The newest program that started with a saga decides for all processes. The row is also the lock under
-- which runs of the saga are claimed: no other statement claims them, so a claim counts all that are in execution or began.
CREATE TABLE scoop.run_limit (
    saga        varchar(255) PRIMARY KEY,  -- the newest name
    handlers    text[] NOT NULL,           -- all its names, that one included: their runs count together
    -- How many runs are executed at once, null without a limit, and whether those of each key count apart.
    concurrency        int CHECK (concurrency > 0),
    concurrency_by_key boolean NOT NULL DEFAULT false,
    serial             boolean NOT NULL DEFAULT false,  -- a run counts until its end, not only while it is executed
    -- How many runs begin within a period, null without a limit, and whether those of each key count apart.
    rate           int CHECK (rate > 0),
    rate_period_ms bigint CHECK (rate_period_ms > 0),
    rate_by_key    boolean NOT NULL DEFAULT false,
    -- What the keys come from: a field or a function of the program; null without keys, and empty if all runs have the same key.
    key_from    varchar(255),
    -- How many runs may wait for a worker when a program launches a message for the saga, null without a limit. Claims do not read it.
    queue       int CHECK (queue > 0),
    CHECK ((rate IS NULL) = (rate_period_ms IS NULL)),
    CHECK (num_nonnulls(concurrency, rate, queue) > 0),
    CHECK ((key_from IS NOT NULL) = (concurrency_by_key OR rate_by_key)),
    CHECK (NOT serial OR concurrency_by_key),
    CHECK (array_ndims(handlers) = 1 AND array_lower(handlers, 1) = 1 AND array_position(handlers, NULL) IS NULL),
    -- Each process looks through the rows of all.
    CONSTRAINT names_are_few CHECK (
        cardinality(handlers) <= 1000 AND octet_length(array_to_string(handlers, '')) <= 262144
    )
);
-- The limits that are not found by each of their names.
CREATE INDEX run_limit_renamed ON scoop.run_limit (saga) WHERE handlers <> ARRAY[saga::text];

-- What the newest claims of sagas with limits have done: a row for each run that they have taken, for each key of which they have parked
-- runs, and for the parked runs that have returned to their queues. Claims insert here under the lock of the limit, and read from the row
-- on that their process knows. So they read no index entry of a run that has ended or returned, which an open transaction would keep.
-- Whether a run is still in execution, its own row says.
CREATE TABLE scoop.limit_log (
    saga         varchar(255) NOT NULL,  -- the newest name
    number       bigint NOT NULL,        -- in the order of the claims
    root         uuid,
    run          uuid,
    key          varchar(255) NOT NULL,  -- empty without a limit by key, and for runs that have returned
    parked_since timestamptz,            -- the queue time of the first parked run of the key
    ready_at     timestamptz,            -- the first time in the queues to which runs have returned
    PRIMARY KEY (saga, number),
    CHECK ((root IS NULL) = (run IS NULL) AND num_nonnulls(run, parked_since, ready_at) = 1)
);

-- The runs of sagas with a rate that began in the last period: of each key, or with an empty key of the saga. Claims write it under
-- the lock of the limits.
CREATE TABLE scoop.rate_window (
    saga       varchar(255) NOT NULL,  -- the newest name
    key        varchar(255) NOT NULL,
    begun      jsonb NOT NULL,         -- groups of runs: when the first and the last began, in microseconds since 1970, and how many
    has_parked boolean NOT NULL,       -- runs of the key may be parked until the rate admits them
    opens_at   timestamptz NOT NULL,   -- the next run begins no earlier
    idle_at    timestamptz NOT NULL,   -- from then on none of these runs counts
    PRIMARY KEY (saga, key)
);
CREATE INDEX rate_window_parked ON scoop.rate_window (saga, opens_at) WHERE has_parked;
CREATE INDEX rate_window_idle ON scoop.rate_window (saga, idle_at) WHERE NOT has_parked;

-- The schedules of sagas, with their next times. The newest program that started with a saga decides its schedule for
-- all programs. A row stays when no program has its saga any more, but is not read then.
CREATE TABLE scoop.schedule (
    topic     varchar(63) NOT NULL,
    handler   varchar(255) NOT NULL,
    every_ms  bigint CHECK (every_ms > 0),
    cron      text,
    zone      text,
    missed    text NOT NULL,   -- skip, once, all: the handling of times at which no process lived
    overlap   text NOT NULL,   -- allow, skip: of a time that comes while the last run goes on
    next_at   timestamptz NOT NULL,  -- infinity: never again
    run_count bigint NOT NULL DEFAULT 0,  -- the number of runs so far
    last_root uuid,            -- the hierarchy of the last of them
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, handler),
    CHECK ((every_ms IS NULL) = (cron IS NOT NULL) AND (cron IS NULL) = (zone IS NULL)),
    CONSTRAINT texts_are_short CHECK (
        octet_length(cron) <= 100000 AND octet_length(zone) <= 1000
        AND octet_length(missed) <= 1000 AND octet_length(overlap) <= 1000
    )
);

CREATE TYPE scoop.run_state AS ENUM (
    'ready',    -- to be claimed, from ready_at on
    'running',  -- executed by its owner
    'waiting',  -- for its children, and perhaps for a time after that
    'ended',    -- did not succeed, and its parent has not recorded that yet
    'stuck',    -- no living definition can continue it, or an operator has to retry it; see the reason
    'failed'    -- its rollback failed: it rests until an operator decides about it
);

-- Parts of a row of `run`, each null where there is nothing of it. Only whole values are assigned. Whether a part is there, one of its
-- fields says: `IS NOT NULL` asks whether all of them are there.

-- How a run went on with its newest SUSPENDED; of a failed run, only how often it had handled the failures of children. `wait` is what it
-- waits for, as that event has it, while strategies decide about messages that it has launched, or once one of these has said that a
-- launch has failed.
CREATE TYPE scoop.suspended AS (jump text, definition int, iteration int, handler_iteration int, wait jsonb);

-- The failed attempts of a run since its last event. The first two counts are those of its last step and definition.
CREATE TYPE scoop.tries AS (
    attempts         int,   -- for lack of the database
    retries          int,   -- after failures that the step is granted
    unknown_attempts int,   -- the number of attempts with an unknown result
    tried_under      int[]  -- the definitions of the programs that tried
);

-- What a run awaits while it is ready, until ready_at at the latest: a signal; or that at most so many of its children have not ended,
-- for a strategy to decide again.
CREATE TYPE scoop.awaited AS (signal text, key text, children int);

-- The newest execution of a run that continued as new, on the forward path.
CREATE TYPE scoop.newest_execution AS (
    number     int,          -- how many executions there were before
    since      timestamptz,  -- the time of the SUSPENDED before it
    message_id uuid          -- the message whose payload counts
);

-- One row for each unfinished run of a handler. It is created when the message is emitted, and deleted when the run has
-- ended and no other run needs to know of it. For people there is the view `runs`.
--
-- Without CHECKs: the server parses their texts anew for every statement that writes the table, and a step writes it
-- once or twice; they cost it a seventh. The engine alone writes the table. The databases of the tests have them.
CREATE TABLE scoop.run (
    root                   uuid NOT NULL,  -- the hierarchy: no statement needs rows of two of them
    id                     uuid NOT NULL,  -- the last of the lineage
    parent                 uuid,           -- the run that waits for it: the one that emitted the message, unless that has accepted its failure
    lineage                uuid[] NOT NULL,
    message_id             uuid NOT NULL,
    topic                  varchar(63) NOT NULL,
    handler                varchar(255) NOT NULL,
    state                  scoop.run_state NOT NULL DEFAULT 'ready',
    ready_at               timestamptz NOT NULL DEFAULT clock_timestamp(),  -- of a run that waits: not before this time
    queued_at              timestamptz,  -- since when it could have begun, and
    began_at               timestamptz,  -- when it did: null before its first claim
    owner                  uuid,
    epoch                  bigint NOT NULL DEFAULT 0,  -- raised by each claim and settlement: the fencing token
    unclaimed_epoch        bigint NOT NULL DEFAULT 0,  -- before its first claim; above all epochs of an earlier row
    rolling_back           boolean NOT NULL DEFAULT false,
    rollback_requested     boolean NOT NULL DEFAULT false,  -- by its parent or a client
    step                   varchar(255),  -- of the newest SUSPENDED; of a failed run: of its failure
    suspended              scoop.suspended,
    suspensions            int NOT NULL DEFAULT 0,  -- the number of SUSPENDED on the forward path
    completions            jsonb,  -- how often each step completed on the forward path, by step; null in a rollback
    outputs                jsonb,  -- outputs of the steps, by step
    context                jsonb,  -- as in its newest event
    replied                boolean NOT NULL DEFAULT false,  -- it has replied to the launcher of its message
    giving_up              boolean NOT NULL DEFAULT false,  -- it was cancelled, or missed a deadline while it waited
    give_up_at             timestamptz,  -- the earliest of the deadlines that count
    rollback_since         timestamptz,  -- it is part of a rollback: requests and earlier deadlines do not count
    failure                jsonb,  -- why it began to roll back
    rollback_failure       jsonb,  -- why its rollback failed the last time, also while a repair is under way
    last_event_at          timestamptz NOT NULL,  -- the next event is later, even if the clock is behind
    tries                  scoop.tries,
    reason                 text,  -- of the last failed attempt, or why it is stuck
    reserved_for           int NOT NULL DEFAULT 0,  -- the definition under which it continues; 0 for the current one
    refused_by             int[],  -- the definitions under which it cannot continue
    awaited                scoop.awaited,
    signalled_by           varchar(55),  -- while its newest SUSPENDED awaits a signal: the span that sent the one it got
    newest_execution       scoop.newest_execution,
    limit_key              varchar(255),  -- the key under which its newest claim counts, or for which it is parked, if its saga has a limit by key
    parked_since           timestamptz,  -- its ready_at before it was parked: then a limit of its key was reached; or was stuck awaiting a signal
    PRIMARY KEY (root, id)
) WITH (
    fillfactor = 50,  -- a run that goes from step to step is updated in place
    vacuum_truncate = false,  -- it would lock the whole table
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE scoop.run
    ALTER COLUMN failure SET STORAGE EXTERNAL,
    ALTER COLUMN rollback_failure SET STORAGE EXTERNAL;

CREATE TYPE scoop.run_outcome AS ENUM (
    'committed', 'rolled_back',
    'dropped'  -- it never began
);

-- One row for each run that has ended: what it was, and what became of it. The statement that ends a run adds it. A run that is to be
-- rolled back after all moves back into `run`. One that was rolled back is in `run`, too, until its parent has recorded the failure.
CREATE TABLE scoop.ended_run (
    root             uuid NOT NULL,
    id               uuid NOT NULL,
    parent           uuid,
    lineage          uuid[] NOT NULL,
    message_id       uuid NOT NULL,
    topic            varchar(63) NOT NULL,
    handler          varchar(255) NOT NULL,
    outcome          scoop.run_outcome NOT NULL,
    failure          jsonb,  -- why it was rolled back
    rollback_failure jsonb,  -- why its rollback had failed the last time, if an operator has repaired it
    context          jsonb,
    queued_at        timestamptz,  -- as in run
    began_at         timestamptz,
    ended_at         timestamptz NOT NULL,  -- the time of its last event
    put_off          boolean NOT NULL DEFAULT false,  -- the deletion of its hierarchy has a row of kept_hierarchy
    PRIMARY KEY (root, id)
);
ALTER TABLE scoop.ended_run
    ALTER COLUMN failure SET STORAGE EXTERNAL,
    ALTER COLUMN rollback_failure SET STORAGE EXTERNAL;

-- For lists: the newest ends of each outcome and handler.
CREATE INDEX ended_run_listed ON scoop.ended_run (outcome, handler, ended_at, id);
-- The hierarchies to delete, by the runs of their first messages.
CREATE INDEX ended_run_due ON scoop.ended_run (topic, outcome, ended_at) WHERE cardinality(lineage) = 2 AND NOT put_off;

-- Whether a run may be what ends its workers: its last two attempts or more have unknown results. A worker executes one
-- such run at a time, so that those which are not the cause are not hit again. The planner replaces the call by its text.
CREATE FUNCTION scoop.is_suspect(tries scoop.tries) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ((tries).unknown_attempts >= 2) IS TRUE;

-- The priority of a run with this context, or of a message: 1 high, 0 normal, -1 low. What is no level is normal. The planner
-- replaces the call by its text.
CREATE FUNCTION scoop.priority_of(context jsonb) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE context ->> ('scoop' || '.priority')  -- in two parts: programs put the name of the schema before each dot
           WHEN 'high' THEN 1 WHEN 'low' THEN -1 ELSE 0 END;

-- The key under which an unfinished run was claimed the last time, if its saga has a limit by key. The planner replaces the call by its
-- text.
CREATE FUNCTION scoop.held_key(state scoop.run_state, limit_key varchar, parked_since timestamptz) RETURNS varchar
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state WHEN 'ended' THEN NULL WHEN 'ready' THEN CASE WHEN parked_since IS NULL THEN limit_key END ELSE limit_key END;

-- Why a run is looked for apart from the others of its queue, or rests; null for the others. A ready run whose context names no
-- priority has the normal one. The planner replaces the call by its text.
CREATE FUNCTION scoop.rare_kind(
    state scoop.run_state, tries scoop.tries, context jsonb, limit_key varchar, parked_since timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE state WHEN 'ready' THEN CASE WHEN scoop.is_suspect(tries) THEN 'suspect'
                                         WHEN context ? ('scoop' || '.priority') THEN 'prioritized'
                                         WHEN scoop.held_key(state, limit_key, parked_since) IS NOT NULL THEN 'keyed' END
                  WHEN 'stuck' THEN 'stuck' WHEN 'failed' THEN 'failed' END;

-- The priority is computed, so no statement that writes a context has to write it, too.
CREATE INDEX run_ready ON scoop.run (handler, topic, reserved_for, scoop.priority_of(context), ready_at)
    WHERE state = 'ready';
-- Few runs, unless many have a priority. A claim finds here whether it has to read more than one level of each queue, and an operator the
-- runs that rest, by time. One index for all that is rare, since each statement that writes a run prepares the conditions of all indexes.
CREATE INDEX run_rare ON scoop.run (scoop.rare_kind(state, tries, context, limit_key, parked_since), ready_at, id)
    WHERE scoop.rare_kind(state, tries, context, limit_key, parked_since) IS NOT NULL OR reserved_for <> 0;
CREATE INDEX run_parent ON scoop.run (root, parent) WHERE parent IS NOT NULL;
-- Waiting runs with a deadline, and ready ones, of which those that no program claims are looked for at intervals.
CREATE INDEX run_give_up ON scoop.run (state, giving_up, give_up_at)
    WHERE state IN ('waiting', 'ready') AND (giving_up OR give_up_at IS NOT NULL);
-- The runs that await a signal; and without one, those about which a strategy decides.
CREATE INDEX run_signal ON scoop.run (((awaited).signal), ((awaited).key))
    WHERE state = 'ready' AND ((awaited).signal IS NOT NULL OR (awaited).children IS NOT NULL);
-- A parked run is ready. Statements that look for parked runs have that as `state::text = 'ready'`, which rules out the index of
-- ready runs: the planner took that one at times, and went through all parked runs of a saga for one.
CREATE INDEX run_parked ON scoop.run
    (handler, topic, reserved_for, limit_key, scoop.priority_of(context), parked_since)
    WHERE parked_since IS NOT NULL;
-- For lists: the newest runs of each state and handler. The condition on the id always holds, and only lists repeat it.
CREATE INDEX run_listed ON scoop.run (state, handler, id)
    WHERE state <> 'ended' AND id >= '00000000-0000-0000-0000-000000000000';

-- The sample of ANALYZE, perhaps ten thousand children of one parent, is out of date a minute later. Without statistics
-- the planner takes ids for selective, which they are.
ALTER TABLE scoop.run
    ALTER root SET STATISTICS 0,
    ALTER id SET STATISTICS 0,
    ALTER parent SET STATISTICS 0,
    ALTER state SET STATISTICS 0,
    ALTER handler SET STATISTICS 0,
    ALTER topic SET STATISTICS 0,
    ALTER ready_at SET STATISTICS 0,
    ALTER limit_key SET STATISTICS 0,
    ALTER parked_since SET STATISTICS 0,
    ALTER give_up_at SET STATISTICS 0;
ALTER INDEX scoop.run_ready ALTER COLUMN 4 SET STATISTICS 0;
ALTER INDEX scoop.run_parked ALTER COLUMN 5 SET STATISTICS 0;
ALTER INDEX scoop.run_rare ALTER COLUMN 1 SET STATISTICS 0;
ALTER INDEX scoop.run_signal ALTER COLUMN 1 SET STATISTICS 0, ALTER COLUMN 2 SET STATISTICS 0;

-- A table that was empty at the last ANALYZE is planned as one row, and then scanned for each of many runs: with a
-- thousand runs waiting that took a second. So the table always contains some rows, which keep the planner on index
-- lookups by id. They belong to no hierarchy, and only the index of the key has them.
-- A program adds them again when it registers, if another program has emptied the table.
CREATE FUNCTION scoop.add_ballast() RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO scoop.run
        (root, id, lineage, message_id, topic, handler, state, rolling_back, rollback_requested, failure, last_event_at,
         reason)
    SELECT '00000000-0000-0000-0000-000000000000', gen_random_uuid(), '{}', '00000000-0000-0000-0000-000000000000',
           'none', 'none', 'ended', true, true, '{}', now(), 'ballast: see the migrations'
    FROM generate_series(1, 3000)
    WHERE NOT EXISTS (SELECT FROM scoop.run r WHERE r.root = '00000000-0000-0000-0000-000000000000');
$$;
SELECT scoop.add_ballast();
ANALYZE scoop.run;

-- LZ4 takes a quarter of the time of the usual compression for text, which is most of what it costs to store a large
-- payload. A server may have been built without it.
DO $$
BEGIN
    ALTER TABLE scoop.message ALTER COLUMN payload SET COMPRESSION lz4;
    ALTER TABLE scoop.return_value ALTER COLUMN value SET COMPRESSION lz4;
    ALTER TABLE scoop.run ALTER COLUMN outputs SET COMPRESSION lz4;
    ALTER TABLE scoop.entity ALTER COLUMN state SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    NULL;
END $$;
