-- Lists the fields whose values operators do not see.
-- Locks: nothing.
SELECT DISTINCT r.field FROM scoop.redaction r ORDER BY r.field
