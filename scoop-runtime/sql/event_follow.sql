-- Which events did these transactions write, in the order of their times? Reads all events from the id $1 on; those
-- before are of earlier transactions. A transaction has 64 bits, of which a row has 32.
-- Locks: nothing.
-- $1 greater ids than this; $2 of this transaction and later ones, $3 before this one, $4 visible in this snapshot; $5 after
-- this time, $6 and if at that time, with a greater id than this; $7 without these; $8 of this handler and $9 of this
-- hierarchy, null for all; $10 how many
SELECT e.id, e.message_id, e.type::text AS type, e.coroutine_name AS handler, e.coroutine_identifier AS worker, e.step,
       e.cooperation_lineage AS lineage, e.created_at, e.exception AS failure, written.by AS transaction
FROM scoop.message_event e
CROSS JOIN LATERAL (
    SELECT newest - ((newest - e.xmin::text::bigint) & 4294967295) AS by
    FROM (SELECT pg_snapshot_xmax($4::pg_snapshot)::text::bigint AS newest) AS snapshot
    OFFSET 0
) written
WHERE e.id > $1
  AND written.by >= $2 AND written.by < $3
  AND pg_visible_in_snapshot(written.by::text::xid8, $4::pg_snapshot)
  AND (e.created_at, e.id) > ($5, $6)
  AND e.id NOT IN (SELECT unnest($7::uuid[]))
  AND ($8::text IS NULL OR e.coroutine_name = $8)
  AND ($9::uuid IS NULL OR e.cooperation_lineage[1] = $9)
ORDER BY e.created_at, e.id
LIMIT $10
