-- Records a signal, unless there is one with its id.
-- Locks: the new row; a signal that another transaction inserts with the same id: waits for that.
-- $1 id, $2 name, $3 key, $4 payload, $5 for how many seconds it is kept, $6 the span that sends it, or null
INSERT INTO scoop.signal (id, name, key, payload, kept_until, traceparent)
VALUES ($1, $2, $3, coalesce($4::pg_catalog.jsonb, 'null'),
        least(pg_catalog.clock_timestamp()
                  OPERATOR(pg_catalog.+) ($5::pg_catalog.float8 OPERATOR(pg_catalog.*) interval '1 second'),
              '9999-12-31 00:00+00'),
        $6)
ON CONFLICT (id) DO NOTHING
