SET LOCAL search_path = pg_catalog, pg_temp;

-- What people do about runs that could not be undone, or cannot be continued.

-- What operators did, for good. The working set follows from the protocol's tables and from this one.
CREATE TABLE scoop.intervention (
    id           uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    root         uuid NOT NULL,
    run          uuid NOT NULL,  -- the last of the lineage
    handler      varchar(255) NOT NULL,
    message_id   uuid NOT NULL,
    step         varchar(255),  -- the part of the rollback that it is about; none for a run that was stuck
    kind         text NOT NULL CHECK (kind IN ('retry', 'skip', 'resolve')),
    repeats      boolean NOT NULL DEFAULT false,  -- the part has a SUSPENDED, and is to run again all the same
    note         text,
    source       text NOT NULL,  -- who asked
    requested_at timestamptz NOT NULL  -- later than any event of the run before
);
CREATE INDEX intervention_run ON scoop.intervention (run, requested_at);
CREATE INDEX intervention_root ON scoop.intervention (root);

-- What could not be undone is rare, and has to be found: that of a hierarchy, and the newest of all.
CREATE INDEX message_event_unrolled ON scoop.message_event ((cooperation_lineage[1]))
    WHERE type = 'ROLLBACK_FAILED';
CREATE INDEX message_event_unrolled_newest ON scoop.message_event (created_at)
    WHERE type = 'ROLLBACK_FAILED';

-- A run that is stuck because it could not be undone waits for an operator, not for another program.
ALTER TABLE scoop.run
    ADD failed_before boolean NOT NULL DEFAULT false,  -- its ROLLBACK_FAILED is on record, and it goes on
    ADD failed_part varchar(255),  -- the part of the rollback that an operator has to see to
    ADD failed_handling int;       -- how often the children's failures had been handled before, if they were why
ALTER TABLE scoop.run ADD CHECK (failed_part IS NULL OR (state = 'stuck' AND failed_before));
CREATE INDEX run_stuck ON scoop.run (ready_at) WHERE state = 'stuck';

-- A handler that will not come back can be struck out, and with it what waits for it.
ALTER TABLE scoop.handler
    ADD dropped timestamptz CHECK (dropped IS NULL OR until IS NOT NULL);  -- runs that had not begun by then never begin
