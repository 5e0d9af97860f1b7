-- Returns values of the steps of a run: those of these names, and of each of these ranges the one with the last name.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 the names, $4 and $5 the first and last name of each range
SELECT named.variable_name, named.value
FROM unnest($3::text[]) AS wanted (name)
-- looked up, one by one
CROSS JOIN LATERAL (
    SELECT r.variable_name, r.value
    FROM scoop.return_value r
    WHERE scoop.run_id(r.cooperation_lineage) = $1 AND r.handler_name = $2 AND r.variable_name = wanted.name
    OFFSET 0
) named
UNION ALL
SELECT newest.variable_name, newest.value
FROM unnest($4::text[], $5::text[]) AS range (first, last)
CROSS JOIN LATERAL (
    SELECT r.variable_name, r.value
    FROM scoop.return_value r
    WHERE scoop.run_id(r.cooperation_lineage) = $1 AND r.handler_name = $2
      AND r.variable_name >= range.first AND r.variable_name <= range.last
      AND length(r.variable_name) = length(range.last)
    ORDER BY r.variable_name DESC
    LIMIT 1
) newest
