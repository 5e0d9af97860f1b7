-- Returns the values of the steps of a run: all, or those of these names and, if there is one, a reply.
-- Locks: nothing.
-- $1 the run's id, $2 its handler, $3 the names, null for all
SELECT variable_name, value
FROM scoop.return_value
WHERE scoop.run_id(cooperation_lineage) = $1 AND handler_name = $2 AND $3::text[] IS NULL
UNION ALL
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
(SELECT variable_name, value
 FROM scoop.return_value
 WHERE scoop.run_id(cooperation_lineage) = $1 AND handler_name = $2 AND $3::text[] IS NOT NULL
   AND variable_name NOT LIKE 'Output of %'
 LIMIT 1)
