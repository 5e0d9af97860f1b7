-- The key under which a claimed run counts: $4 ids and $6 keys.
        limit_key = ($6::text[])[array_position($4::uuid[], r.id)],
        parked_since = NULL,
