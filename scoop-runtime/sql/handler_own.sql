-- Records that these handlers belong to a service, and that this build of it has them.
-- Locks: the rows of handler that change.
-- $1 topics and $2 handlers (pairs), $3 service, $4 build
UPDATE scoop.handler h
SET service = $3, build = $4, build_since = clock_timestamp()
FROM unnest($1::text[], $2::text[]) AS own (topic, handler)
WHERE h.topic = own.topic AND h.handler = own.handler AND h.retired_at IS NULL
  AND (h.service, h.build) IS DISTINCT FROM ($3::text, $4::text)
