-- In which fields does a message have one of these values?
-- Locks: nothing.
-- $1 the values
SELECT known.name::text
FROM (SELECT DISTINCT f.name FROM scoop.find_field f) known
WHERE EXISTS (
    SELECT FROM unnest($1::jsonb[]) AS v (value)
    CROSS JOIN LATERAL (SELECT FROM scoop.found_by f WHERE f.name = known.name AND f.value = v.value LIMIT 1) found)
ORDER BY known.name
