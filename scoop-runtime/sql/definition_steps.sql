-- Which steps did a saga have under this definition?
-- Locks: nothing.
-- $1 the number of the definition, $2 handler
SELECT d.steps FROM scoop.definition d WHERE d.id = $1 AND d.handler = $2
