-- May the role of this session write messages and runs, or does it need `scoop.launch` for that?
-- Locks: nothing.
SELECT has_table_privilege('scoop.message', 'INSERT') AND has_table_privilege('scoop.message_event', 'INSERT')
   AND has_table_privilege('scoop.run', 'INSERT') AND has_function_privilege('scoop.keep_unhandled(uuid)', 'EXECUTE')
