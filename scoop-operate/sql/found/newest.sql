-- The newest messages with one of the values $2 in the field $1.
SELECT newest.found, newest.root, newest.launched_at
    FROM (SELECT DISTINCT v.value FROM unnest($2::jsonb[]) AS v (value)) v
    CROSS JOIN LATERAL (
        SELECT f.found, f.root, f.launched_at FROM scoop.found_by f
        WHERE f.name = $1 AND f.value = v.value
          AND (f.launched_at, f.found)
                <= (coalesce($3::timestamptz, 'infinity'), coalesce($4::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
        ORDER BY f.launched_at DESC, f.found DESC
        LIMIT $5
    ) newest
    ORDER BY newest.launched_at DESC, newest.found DESC
    LIMIT $5
