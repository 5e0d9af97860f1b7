-- Finds the hierarchy or run of an id: its lineage, and its message. A pending run is only in the working
-- set, which is read only if the history has no such id.
-- Locks: nothing.
-- $1 the id: the last of the lineage
(SELECT e.cooperation_lineage AS lineage, e.message_id
 FROM scoop.message_event e
 WHERE scoop.run_id(e.cooperation_lineage) = $1
   AND (e.type = 'SEEN' OR e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1)
 ORDER BY e.created_at
 LIMIT 1)
UNION ALL
(SELECT r.lineage, r.message_id
 FROM scoop.listed_handler l
 CROSS JOIN LATERAL (
     SELECT r.root, r.lineage, r.message_id FROM scoop.run r
     WHERE r.state <> 'ended' AND r.id >= '00000000-0000-0000-0000-000000000000'
       AND r.state = l.state AND r.handler = l.handler AND r.id = $1
     LIMIT 1
 ) r
 LIMIT 1)
LIMIT 1
