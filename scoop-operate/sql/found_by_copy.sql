-- Records by what copies of messages are found: as the messages are. A copy starts a hierarchy of its own.
-- Locks: the new rows.
-- Arrays with an element for each message: $1 what it is found by, $2 the hierarchy of its copy
INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
SELECT e.root, f.name, f.value, f.number, e.root, e.launched_at
FROM unnest($1::uuid[], $2::uuid[]) AS a (found, root)
JOIN scoop.found_by f ON f.found = a.found
CROSS JOIN LATERAL (
    SELECT a.root, e.created_at AS launched_at FROM scoop.message_event e
    WHERE scoop.run_id(e.cooperation_lineage) = a.root AND e.type::text = 'EMITTED'
    LIMIT 1
) e
ON CONFLICT (found, name) DO NOTHING
