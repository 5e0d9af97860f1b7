-- Which rights that a worker needs does the role of this session lack? `docs/reference/security.md` lists the same.
-- Locks: nothing.
WITH needed AS (
    SELECT t.name, r.privilege
    FROM (VALUES
        ('scoop.message', '{SELECT,INSERT}'::text[]),
        ('scoop.message_event', '{SELECT,INSERT}'),
        ('scoop.return_value', '{SELECT,INSERT}'),
        ('scoop.definition', '{SELECT,INSERT}'),
        ('scoop.intervention', '{SELECT,INSERT}'),
        ('scoop.redelivery', '{SELECT,INSERT}'),
        ('scoop.relaunch', '{SELECT,INSERT}'),
        ('scoop.execution', '{SELECT,INSERT}'),
        ('scoop.begun_step', '{SELECT,INSERT,UPDATE}'),
        ('scoop.entity', '{SELECT,INSERT,UPDATE}'),
        ('scoop.entity_event', '{SELECT,INSERT}'),
        ('scoop.redaction', '{SELECT,INSERT}'),
        ('scoop.found_by', '{SELECT,INSERT}'),
        ('scoop.find_field', '{SELECT,INSERT,UPDATE}'),
        ('scoop.ended_pause', '{SELECT,INSERT}'),
        ('scoop.handler', '{SELECT,INSERT,UPDATE}'),
        ('scoop.keep_time', '{SELECT,INSERT,UPDATE}'),
        ('scoop.kept_hierarchy', '{SELECT}'),
        ('scoop.kept_key', '{SELECT}'),
        ('scoop.retention', '{SELECT}'),
        ('scoop.signal', '{SELECT,INSERT,UPDATE}'),
        ('scoop.schedule', '{SELECT,INSERT,UPDATE}'),
        ('scoop.join_member', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.run', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.ended_run', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.launches', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.worker', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.pause', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.run_limit', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.limit_log', '{SELECT,INSERT,DELETE}'),
        ('scoop.rate_window', '{SELECT,INSERT,UPDATE,DELETE}'),
        ('scoop.abandoned_queue', '{SELECT}'),
        ('scoop.ready_queue', '{SELECT}'),
        ('scoop.served_queue', '{SELECT}'),
        ('scoop.listed_handler', '{SELECT}'),
        ('scoop.paused', '{SELECT}'),
        ('scoop.reached_limit', '{SELECT}'),
        ('scoop.limited_topic', '{SELECT}'),
        ('scoop.unfinished_run', '{SELECT}')
    ) AS t (name, privileges)
    CROSS JOIN LATERAL unnest(t.privileges) AS r (privilege)
)
SELECT privilege || ' on ' || name FROM needed WHERE NOT has_table_privilege(name, privilege)
UNION ALL
SELECT 'UPDATE of a column on scoop.message' WHERE NOT has_any_column_privilege('scoop.message', 'UPDATE')
UNION ALL
SELECT 'EXECUTE on ' || p.oid::regprocedure
FROM pg_proc p
WHERE p.pronamespace = (SELECT c.relnamespace FROM pg_class c WHERE c.oid = 'scoop.run'::regclass)
  AND NOT has_function_privilege(p.oid, 'EXECUTE')
