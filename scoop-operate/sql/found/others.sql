-- Whether the run `r` is found by all of the fields $6: by those of its message, or of the first message of its hierarchy.
NOT EXISTS (
        SELECT FROM jsonb_to_recordset($6::jsonb) AS c (name text, "values" jsonb)
        WHERE NOT EXISTS (
            SELECT FROM scoop.found_by f
            WHERE f.found = ANY (ARRAY[r.root, r.message_id]) AND f.name = c.name AND c."values" @> f.value))
