-- Rules for every row of the working set, from every writer. The tables of a program go without
-- these rules, which cost a seventh of its steps; those of the tests have them.
ALTER TABLE scoop.run
    ADD CHECK (lineage[1] = root AND lineage[cardinality(lineage)] = id),
    ADD CHECK (CASE WHEN parent IS NULL THEN cardinality(lineage) = 2 OR told  -- requested by a client: no parent waits
                    ELSE lineage[cardinality(lineage) - 1] = parent AND cardinality(lineage) > 2 END),
    ADD CHECK ((state = 'running') = (owner IS NOT NULL)),
    ADD CHECK (state <> 'ended' OR failure IS NOT NULL),
    ADD CHECK (state <> 'stuck' OR reason IS NOT NULL),
    ADD CHECK (NOT told OR (backward AND failure IS NOT NULL)),
    ADD CHECK (NOT held OR (state = 'stuck' AND failed_before));
