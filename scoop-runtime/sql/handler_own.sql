-- Records that these handlers belong to a service, and that this build of it has them. Those are registered again that were retired while
-- no living process had them (handler_retire_gone.sql), such as after a lost session. Former names of other handlers are not.
-- Locks: the rows of handler that change.
-- $1 topics and $2 handlers (pairs), $3 service, $4 build, $5 since when the process runs, null: from now on
WITH own AS MATERIALIZED (
    SELECT topic, handler FROM unnest($1::text[], $2::text[]) AS own (topic, handler)
),
returned AS (
    INSERT INTO scoop.handler (topic, handler, was, service, build, build_since)
    SELECT own.topic, own.handler, last.was, $3, $4, clock_timestamp()
    FROM own
    CROSS JOIN LATERAL (
        SELECT h.was, h.retired_at, h.service, h.build FROM scoop.handler h
        WHERE h.topic = own.topic AND h.handler = own.handler
        ORDER BY h.since DESC
        LIMIT 1
    ) last
    WHERE last.retired_at IS NOT NULL AND last.service IS NOT NULL AND last.build IS NULL
      AND NOT EXISTS (
          SELECT FROM scoop.handler h WHERE h.topic = own.topic AND h.retired_at IS NULL AND own.handler = ANY (h.was)
      )
    ON CONFLICT DO NOTHING
)
UPDATE scoop.handler h
SET service = $3, build = $4, build_since = clock_timestamp()
FROM own
WHERE h.topic = own.topic AND h.handler = own.handler AND h.retired_at IS NULL
  AND (h.service, h.build) IS DISTINCT FROM ($3::text, $4::text)
  -- not back to a process that started before, and only has a new session
  AND (h.build_since IS NULL OR coalesce($5, clock_timestamp()) > h.build_since)
