-- Which events did these transactions write? A page of them, in the order of their ids. Reads the events from the id $1 on up
-- to the last one of the page; those before are of earlier transactions, or of an earlier page. The number of a transaction has
-- 64 bits, of which a row has 32. The page ends before its failures have more than about 4 MiB: `found` is how many events it
-- would have had. Of a lineage only the first and the last id are returned, since a forged one may have millions.
-- Locks: nothing.
-- $1 greater ids than this; $2 of this transaction and later ones, $3 before this one, $4 visible in this snapshot; $5 without
-- these; $6 of this handler and $7 of this hierarchy, null for all; $8 how many; $9 whether with failures
SELECT page.id, page.message_id, page.type, page.handler, page.worker, page.step, page.hierarchy, page.run, page.created_at,
       scoop.shown_failure(page.failure) AS failure, page.transaction, page.found
FROM (
    SELECT e.*, count(*) OVER () AS found,
           sum(scoop.shown_bytes(e.failure)) OVER (ORDER BY e.id ROWS UNBOUNDED PRECEDING) AS bytes,
           row_number() OVER (ORDER BY e.id ROWS UNBOUNDED PRECEDING) AS nth
    FROM (
        SELECT e.id, e.message_id, e.type::text AS type, e.coroutine_name AS handler, e.coroutine_identifier AS worker,
               e.step, e.cooperation_lineage[1] AS hierarchy,
               CASE WHEN cardinality(e.cooperation_lineage) > 1 THEN scoop.run_id(e.cooperation_lineage) END AS run,
               e.created_at, CASE WHEN $9 THEN e.exception END AS failure,
               written.by AS transaction
        FROM scoop.message_event e
        CROSS JOIN LATERAL (
            SELECT newest - ((newest - e.xmin::text::bigint) & 4294967295) AS by
            FROM (SELECT pg_snapshot_xmax($4::pg_snapshot)::text::bigint AS newest) AS snapshot
            OFFSET 0
        ) written
        WHERE e.id > $1
          AND written.by >= $2 AND written.by < $3
          AND pg_visible_in_snapshot(written.by::text::xid8, $4::pg_snapshot)
          AND e.id NOT IN (SELECT unnest($5::uuid[]))
          AND ($6::text IS NULL OR e.coroutine_name = $6)
          AND ($7::uuid IS NULL OR e.cooperation_lineage[1] = $7)
        ORDER BY e.id
        LIMIT $8
    ) e
) page
WHERE page.nth = 1 OR coalesce(page.bytes, 0) <= 4194304
ORDER BY page.id
