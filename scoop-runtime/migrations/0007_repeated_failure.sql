SET LOCAL search_path = pg_catalog, pg_temp;

-- What could not be undone, once more.

-- That a run failed again after an operator had it go on: of ROLLBACK_FAILED there is one for each run, and that
-- tells of the first time. The working set follows from the protocol's tables, interventions, and this one.
CREATE TABLE scoop.repeated_failure (
    root      uuid NOT NULL,
    run       uuid NOT NULL,  -- the last of the lineage
    step      varchar(255) NOT NULL,  -- the part of the rollback that failed
    handling  int,  -- how often the children's failures had been handled before, if they were why
    exception jsonb NOT NULL,
    failed_at timestamptz NOT NULL,  -- later than any event of the run and any intervention before
    PRIMARY KEY (run, failed_at)
);
CREATE INDEX repeated_failure_root ON scoop.repeated_failure (root);

-- So the working set need not know what failed, but only who waits for an operator.
ALTER TABLE scoop.run
    ADD held boolean NOT NULL DEFAULT false;  -- it could not be undone, and is stuck until an operator has seen to it
UPDATE scoop.run SET held = true WHERE failed_part IS NOT NULL;
ALTER TABLE scoop.run DROP failed_part, DROP failed_handling;
