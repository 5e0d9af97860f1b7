SET LOCAL search_path = pg_catalog, pg_temp;

-- The replies of a run, apart from the outputs of its steps: reading them must not cost more for a run of many steps.
CREATE INDEX return_value_reply ON scoop.return_value
    ((cooperation_lineage[cardinality(cooperation_lineage)]), handler_name)
    WHERE variable_name NOT LIKE 'Output of %';
