-- What is recorded about these parts of a hierarchy? A JSON object for each row, with the name of its table. These are the rows
-- that scoop.prune deletes: those of each part, but interventions by their hierarchy, since a run that an operator has retried may
-- have no event. Rows with a hierarchy or a run that is not recorded are neither archived nor deleted.
-- Locks: nothing.
-- $1 the parts: hierarchies and runs
SELECT (jsonb_build_object('table', found.name) || found.data)::text AS line
FROM unnest($1::uuid[]) WITH ORDINALITY AS p (id, place)
CROSS JOIN LATERAL (
    SELECT 1 AS rank, 'message' AS name, to_jsonb(m) AS data
    FROM (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = p.id AND e.type::text = 'EMITTED'
        OFFSET 0
    ) launched
    CROSS JOIN LATERAL (SELECT r.* FROM scoop.message r WHERE r.id = launched.message_id OFFSET 0) m
  UNION ALL
    SELECT 1, 'message', to_jsonb(m)
    FROM (SELECT x.message_id FROM scoop.execution x WHERE x.run = p.id OFFSET 0) execution
    CROSS JOIN LATERAL (SELECT r.* FROM scoop.message r WHERE r.id = execution.message_id OFFSET 0) m
  UNION ALL
    SELECT 3, 'redelivery', to_jsonb(d)
    FROM (
        SELECT e.message_id FROM scoop.message_event e
        WHERE scoop.run_id(e.cooperation_lineage) = p.id AND e.type::text = 'EMITTED'
        OFFSET 0
    ) launched
    CROSS JOIN LATERAL (SELECT r.* FROM scoop.redelivery r WHERE r.message_id = launched.message_id OFFSET 0) d
  UNION ALL
    SELECT 2, 'message_event', to_jsonb(e) FROM (SELECT r.* FROM scoop.message_event r WHERE scoop.run_id(r.cooperation_lineage) = p.id OFFSET 0) e
  UNION ALL
    SELECT 3, 'return_value', to_jsonb(v) FROM (SELECT r.* FROM scoop.return_value r WHERE scoop.run_id(r.cooperation_lineage) = p.id OFFSET 0) v
  UNION ALL
    SELECT 3, 'execution', to_jsonb(x) FROM (SELECT r.* FROM scoop.execution r WHERE r.run = p.id OFFSET 0) x
  UNION ALL
    SELECT 3, 'begun_step', to_jsonb(b) FROM (SELECT r.* FROM scoop.begun_step r WHERE r.run = p.id OFFSET 0) b
  UNION ALL
    SELECT 3, 'intervention', to_jsonb(i) FROM (SELECT r.* FROM scoop.intervention r WHERE r.root = p.id OFFSET 0) i
  UNION ALL
    SELECT 3, 'relaunch', to_jsonb(r) FROM (SELECT r.* FROM scoop.relaunch r WHERE r.of_root = p.id OFFSET 0) r
  UNION ALL
    SELECT 3, 'join_member', to_jsonb(j) FROM (SELECT r.* FROM scoop.join_member r WHERE r.run = p.id OFFSET 0) j
) found
ORDER BY p.place, found.rank, found.data -> 'created_at', found.name, found.data -> 'id'
