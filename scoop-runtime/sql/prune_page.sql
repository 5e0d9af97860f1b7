-- Which hierarchies may be old enough to be deleted? Reads a page of all launches in the order of their messages. A row for
-- each, with the root if it started a hierarchy long enough ago.
-- Locks: nothing.
-- $1 the message after which to begin, $2 how many seconds ago, $3 how many launches at most
SELECT e.message_id,
       CASE WHEN cardinality(e.cooperation_lineage) = 1
             AND e.created_at < clock_timestamp() - $2::float8 * interval '1 second'
            THEN e.cooperation_lineage[1] END AS root
FROM scoop.message_event e
WHERE e.type = 'EMITTED' AND e.message_id > $1
ORDER BY e.message_id
LIMIT $3
