-- How many messages have these values? Counts so many of each field at most.
-- Locks: nothing.
-- $1 the fields, each with its values, $2 so many
SELECT coalesce((
    SELECT sum(of_value.count)
    FROM jsonb_array_elements(c."values") AS v (value)
    CROSS JOIN LATERAL (
        SELECT count(*) FROM (SELECT FROM scoop.found_by f WHERE f.name = c.name AND f.value = v.value LIMIT $2) found
    ) of_value
), 0)::bigint AS count
FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS (name text, "values" jsonb)) WITH ORDINALITY AS c (name, "values", nth)
ORDER BY c.nth
