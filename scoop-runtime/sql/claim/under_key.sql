-- The key under which a claimed run counts: $4 ids and $6 keys. One without a key only ends, and does not begin.
        limit_key = ($6::text[])[array_position($4::uuid[], r.id)],
        parked_since = NULL,
        began_at = CASE WHEN ($6::text[])[array_position($4::uuid[], r.id)] IS NULL THEN r.began_at
                        ELSE coalesce(r.began_at, clock_timestamp()) END,
