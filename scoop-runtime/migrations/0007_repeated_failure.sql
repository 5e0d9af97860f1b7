SET LOCAL search_path = pg_catalog, pg_temp;

-- Repeated failures of rollbacks.

-- Records that a run failed again after an operator had it continue. A run has one ROLLBACK_FAILED, with the first
-- failure. The working set follows from the protocol's tables, interventions, and this one.
CREATE TABLE scoop.repeated_failure (
    root      uuid NOT NULL,
    run       uuid NOT NULL,  -- the last of the lineage
    step      varchar(255) NOT NULL,  -- the part of the rollback that failed
    handling  int,  -- how often the children's failures had been handled before, if they were the reason
    exception jsonb NOT NULL,
    failed_at timestamptz NOT NULL,  -- later than any event of the run and any intervention before
    PRIMARY KEY (run, failed_at)
);
CREATE INDEX repeated_failure_root ON scoop.repeated_failure (root);

-- So the working set needs to know which runs await an operator, but not what failed.
ALTER TABLE scoop.run
    ADD held boolean NOT NULL DEFAULT false;  -- its rollback failed, and it is stuck until an operator intervenes
UPDATE scoop.run SET held = true WHERE failed_part IS NOT NULL;
ALTER TABLE scoop.run DROP failed_part, DROP failed_handling;
