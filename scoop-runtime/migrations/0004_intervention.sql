SET LOCAL search_path = pg_catalog, pg_temp;

-- Interventions of operators, for failed rollbacks and stuck runs.

-- All interventions, for good. The working set follows from the protocol's tables and from this one.
CREATE TABLE scoop.intervention (
    id           uuid PRIMARY KEY DEFAULT scoop.gen_uuid_v7(),
    root         uuid NOT NULL,
    run          uuid NOT NULL,  -- the last of the lineage
    handler      varchar(255) NOT NULL,
    message_id   uuid NOT NULL,
    step         varchar(255),  -- the part of the rollback that it is about; none for a run that was stuck
    kind         text NOT NULL CHECK (kind IN ('retry', 'skip', 'resolve')),
    repeats      boolean NOT NULL DEFAULT false,  -- the part has a SUSPENDED, and is to run again nevertheless
    note         text,
    source       text NOT NULL,  -- the requester
    requested_at timestamptz NOT NULL  -- later than any event of the run before
);
CREATE INDEX intervention_run ON scoop.intervention (run, requested_at);
CREATE INDEX intervention_root ON scoop.intervention (root);

-- Failed rollbacks are rare, and have to be found: those of a hierarchy, and the newest of all.
CREATE INDEX message_event_unrolled ON scoop.message_event ((cooperation_lineage[1]))
    WHERE type = 'ROLLBACK_FAILED';
CREATE INDEX message_event_unrolled_newest ON scoop.message_event (created_at)
    WHERE type = 'ROLLBACK_FAILED';

-- A run that is stuck after a failed rollback waits for an operator, not for another program.
ALTER TABLE scoop.run
    ADD failed_before boolean NOT NULL DEFAULT false,  -- its ROLLBACK_FAILED is recorded, and its rollback continues
    ADD failed_part varchar(255),  -- the part of the rollback that an operator has to handle
    ADD failed_handling int;       -- how often the children's failures had been handled before, if they were the reason
ALTER TABLE scoop.run ADD CHECK (failed_part IS NULL OR (state = 'stuck' AND failed_before));
CREATE INDEX run_stuck ON scoop.run (ready_at) WHERE state = 'stuck';

-- A handler that will not come back can be retired, and its runs that have not begun can be deleted.
ALTER TABLE scoop.handler
    ADD dropped timestamptz CHECK (dropped IS NULL OR until IS NOT NULL);  -- runs that had not begun by then never begin
