-- Which hierarchy or run has this id? Its lineage, and the message that it is about. A run that nobody
-- has begun is on no record but that of the working set, at which we look only then.
-- Locks: nothing.
-- $1 the id: the last of the lineage
(SELECT e.cooperation_lineage AS lineage, e.message_id
 FROM scoop.message_event e
 WHERE e.cooperation_lineage[cardinality(e.cooperation_lineage)] = $1
   AND (e.type = 'SEEN' OR e.type = 'EMITTED' AND cardinality(e.cooperation_lineage) = 1)
 ORDER BY e.created_at
 LIMIT 1)
UNION ALL
(SELECT r.lineage, r.message_id
 FROM scoop.run r
 WHERE r.id = $1
 LIMIT 1)
LIMIT 1
