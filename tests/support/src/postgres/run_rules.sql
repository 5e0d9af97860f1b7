-- Rules for every row of the working set, from every writer. The tables of a program go without
-- these rules, which cost a seventh of its steps; those of the tests have them.
ALTER TABLE scoop.run
    ADD CHECK (lineage[1] = root AND scoop.run_id(lineage) = id),
    ADD CHECK (parent IS NULL OR lineage[cardinality(lineage) - 1] = parent AND cardinality(lineage) > 2),
    ADD CHECK ((state = 'running') = (owner IS NOT NULL)),
    ADD CHECK (state <> 'ended' OR failure IS NOT NULL),
    ADD CHECK (state <> 'stuck' OR reason IS NOT NULL),
    ADD CHECK (NOT rollback_requested OR (rolling_back AND failure IS NOT NULL)),
    ADD CHECK (state <> 'failed' OR (rolling_back AND failure IS NOT NULL AND rollback_failure IS NOT NULL AND step IS NOT NULL)),
    ADD CHECK (parked_since IS NULL OR limit_key IS NOT NULL OR (state = 'stuck' AND (awaited).signal IS NOT NULL));
