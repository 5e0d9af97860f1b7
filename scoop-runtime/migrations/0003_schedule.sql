SET LOCAL search_path = pg_catalog, pg_temp;

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
    fired     bigint NOT NULL DEFAULT 0,  -- the number of runs so far
    last_root uuid,            -- the hierarchy of the last of them
    since     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (topic, handler),
    CHECK ((every_ms IS NULL) = (cron IS NOT NULL) AND (cron IS NULL) = (zone IS NULL))
);
