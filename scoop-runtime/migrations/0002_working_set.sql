SET LOCAL search_path = pg_catalog, pg_temp;

-- The working set: the engine's state beside the protocol. It stays small with a long history: a run that ended leaves
-- it.

-- Subscriptions of handlers to topics. A handler stays registered while no process of it lives, so that messages
-- emitted meanwhile wait for it. `until` closes an entry; the history is kept.
CREATE TABLE scoop.handler (
    topic   varchar(63) NOT NULL,
    handler varchar(255) NOT NULL,
    since   timestamptz NOT NULL DEFAULT clock_timestamp(),
    until   timestamptz,
    was     text[],  -- former names of the saga, which are not registered beside it
    PRIMARY KEY (topic, handler, since),
    -- A process reads these rows of all. An empty list has no dimension, hence no bound either.
    CONSTRAINT former_names_are_a_list CHECK (
        array_ndims(was) = 1 AND array_lower(was, 1) = 1 AND array_position(was, NULL) IS NULL
    )
);
CREATE UNIQUE INDEX handler_listening ON scoop.handler (topic, handler) WHERE until IS NULL;

-- The definitions of sagas. A run refers to the definition under which its newest step completed, so that a
-- program that has another one can determine where to continue.
CREATE TABLE scoop.definition (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler     varchar(255) NOT NULL,
    fingerprint uuid NOT NULL,  -- of the steps, and of the types of the message, its replies and what the steps return
    steps       jsonb NOT NULL,  -- in their order, each with its names, its purpose, and its other functions
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (handler, fingerprint)
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
    topology   bigint NOT NULL DEFAULT 0,  -- raised whenever a process starts or ends; claims name the value they know
    -- Each process reads the rows of all. An empty list has no dimension, hence no bound either.
    CONSTRAINT sagas_are_lists CHECK (
        array_ndims(topics) = 1 AND array_lower(topics, 1) = 1 AND array_ndims(handlers) = 1
        AND array_lower(handlers, 1) = 1 AND array_ndims(definitions) = 1 AND array_lower(definitions, 1) = 1
    ),
    CHECK (array_position(topics || handlers, NULL) IS NULL AND array_position(definitions, NULL) IS NULL),
    CHECK (cardinality(topics) = cardinality(handlers) AND cardinality(handlers) = cardinality(definitions))
);

-- Whether the session of a worker is gone: its lock is free, or no backend of the worker's role is left that could hold
-- it. Every role of the database can read the key of a lock in `pg_locks`, queue for it, and get it when the worker
-- dies; but it cannot be that backend. The start of a backend is visible to members of its role only.
-- Locks: the advisory lock, until the end of the transaction, if it is free.
CREATE FUNCTION scoop.is_gone(lock_key bigint, backend int, backend_since timestamptz, role oid) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN pg_try_advisory_xact_lock(lock_key) OR NOT EXISTS (
    SELECT FROM pg_stat_get_activity(backend) a
    WHERE a.usesysid = role AND coalesce(a.backend_start = backend_since, true)
);

CREATE TYPE scoop.run_state AS ENUM (
    'ready',    -- to be claimed, from ready_at on
    'running',  -- executed by its owner
    'waiting',  -- for its children
    'ended',    -- did not succeed, and its parent has not recorded that yet
    'stuck'     -- no living definition can continue it, or an operator has to decide; see the reason
);

-- One row for each unfinished run of a handler. It is created when the message is emitted, and deleted when the run has
-- ended and no other run needs to know of it.
CREATE TABLE scoop.run (
    root              uuid NOT NULL,  -- the hierarchy: no statement needs rows of two of them
    id                uuid NOT NULL,  -- the last of the lineage
    parent            uuid,           -- the run that emitted the message; none for a root's
    lineage           uuid[] NOT NULL,
    message_id        uuid NOT NULL,
    topic             varchar(63) NOT NULL,
    handler           varchar(255) NOT NULL,
    state             scoop.run_state NOT NULL DEFAULT 'ready',
    ready_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    owner             uuid,
    epoch             bigint NOT NULL DEFAULT 0,  -- raised by each claim and settlement: the fencing token
    first_epoch       bigint NOT NULL DEFAULT 0,  -- before its first claim; above all epochs of an earlier row
    backward          boolean NOT NULL DEFAULT false,
    told              boolean NOT NULL DEFAULT false,  -- the rollback was requested
    step              varchar(255),  -- of the newest SUSPENDED, as are the next four
    jump              text,
    definition        int,
    iteration         int,
    handler_iteration int,
    suspensions       int NOT NULL DEFAULT 0,  -- the number of SUSPENDED on the forward path
    completions       jsonb,  -- how often each step completed on the forward path, by step; null in a rollback
    outputs           jsonb,  -- outputs of the steps, by step
    context           jsonb,  -- as in its newest event
    replied           boolean NOT NULL DEFAULT false,  -- it has replied to the launcher of its message
    gives_up          boolean NOT NULL DEFAULT false,  -- it was cancelled, or missed a deadline while it waited
    give_up_at        timestamptz,  -- the earliest of the deadlines that count
    undoing_since     timestamptz,  -- it is part of a rollback: requests and earlier deadlines do not count
    failure           jsonb,  -- why it began to roll back
    rollback_failure  jsonb,  -- why its rollback failed
    turned_back_at    timestamptz,
    last_event_at     timestamptz NOT NULL,  -- the next event is later, even if the clock is behind
    attempts          int NOT NULL DEFAULT 0,  -- failed since the last event, for lack of the database
    retries           int NOT NULL DEFAULT 0,  -- since the last event, after failures that did not count
    tried_under       int[],  -- the definitions of the programs that tried, unless both are 0; both are of the last one
    doubts            int NOT NULL DEFAULT 0,  -- attempts with an unknown result since the last event, unless both counts are 0
    reason            text,  -- of the last failed attempt, or why it is stuck
    reserved_for      int NOT NULL DEFAULT 0,  -- the one definition under which it continues; 0 for the current one
    refused_by        int[],  -- the definitions under which it cannot continue
    PRIMARY KEY (root, id),
    CHECK (lineage[1] = root AND lineage[cardinality(lineage)] = id AND array_position(lineage, NULL) IS NULL),
    CHECK (CASE WHEN parent IS NULL THEN cardinality(lineage) = 2 OR told AND cardinality(lineage) > 2  -- requested by a client: no parent waits
                ELSE lineage[cardinality(lineage) - 1] = parent AND cardinality(lineage) > 2 END),
    CHECK ((state = 'running') = (owner IS NOT NULL)),
    CHECK (state <> 'ended' OR failure IS NOT NULL),
    CHECK (state <> 'stuck' OR reason IS NOT NULL),
    CHECK (NOT told OR (backward AND failure IS NOT NULL))
) WITH (
    fillfactor = 50,  -- a run that goes from step to step is updated in place
    vacuum_truncate = false,  -- see below
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05
);
-- Whether a run may be what ends its workers: its last two attempts or more have unknown results. A worker executes one
-- such run at a time, so that those which are not the cause are not hit again.
CREATE FUNCTION scoop.is_suspect(doubts int, attempts int, retries int) RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN doubts >= 2 AND (attempts > 0 OR retries > 0);

-- The failed attempts before one more by a program with this definition: how many were of the same step, and under
-- which definitions. `again` is whether the former attempts were of the same step. If it is null, they were if they
-- were under the same definition. The definition is null if it is unknown.
CREATE FUNCTION scoop.tried(INOUT attempts int, INOUT retries int, INOUT tried_under int[], definition int, again boolean)
LANGUAGE sql IMMUTABLE
RETURN (
    -- bounded, so that a forged count cannot overflow
    SELECT ROW (CASE WHEN same THEN least(attempts, 2000000000) ELSE 0 END,
                CASE WHEN same THEN least(retries, 2000000000) ELSE 0 END,
                CASE WHEN definition IS NULL THEN former ELSE array_remove(former, definition) || definition END)
    FROM (VALUES (
        coalesce(again, definition IS NULL OR tried_under[cardinality(tried_under)] = definition),
        CASE WHEN (attempts > 0 OR retries > 0) AND array_ndims(tried_under) = 1 THEN tried_under END
    )) AS v (same, former)
);

CREATE INDEX run_ready ON scoop.run (handler, topic, reserved_for, ready_at) WHERE state = 'ready';
CREATE INDEX run_suspect ON scoop.run (ready_at) WHERE state = 'ready' AND scoop.is_suspect(doubts, attempts, retries);
CREATE INDEX run_reserved ON scoop.run (handler) WHERE reserved_for <> 0;
CREATE INDEX run_parent ON scoop.run (root, parent) WHERE parent IS NOT NULL;
CREATE INDEX run_give_up ON scoop.run (give_up_at)
    WHERE state = 'waiting' AND NOT gives_up AND give_up_at IS NOT NULL;

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
    ALTER give_up_at SET STATISTICS 0;

-- A plan that was made while this table was empty would read the whole of it, and stays in use when the table has
-- become large. So the table is never small: some pages are filled once and stay. The planner counts pages, and looks
-- runs up by their index from the first day.
INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
SELECT root, id, ARRAY[root, id], id, 'none', 'none', now()
FROM (SELECT gen_random_uuid() AS root, gen_random_uuid() AS id FROM generate_series(1, 3000)) filling;
DELETE FROM scoop.run;

-- The queues of ready runs that no living worker claims: none has their saga, or the definition that they are reserved
-- for. Goes through the index from one queue to the next, so that the runs in them cost nothing.
CREATE VIEW scoop.abandoned_queue AS
WITH RECURSIVE queue (handler, topic, reserved_for) AS (
    (SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
     WHERE r.state = 'ready'
     ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1)
    UNION ALL
    SELECT next.handler, next.topic, next.reserved_for
    FROM queue q
    CROSS JOIN LATERAL (
        SELECT r.handler, r.topic, r.reserved_for FROM scoop.run r
        WHERE r.state = 'ready' AND (r.handler, r.topic, r.reserved_for) > (q.handler, q.topic, q.reserved_for)
        ORDER BY r.handler, r.topic, r.reserved_for LIMIT 1
    ) next
)
SELECT q.handler, q.topic, q.reserved_for FROM queue q
WHERE NOT EXISTS (
    SELECT FROM scoop.worker w, unnest(w.topics, w.handlers, w.definitions) AS own (topic, handler, definition)
    WHERE own.handler = q.handler AND own.topic = q.topic AND q.reserved_for IN (0, own.definition)
);
