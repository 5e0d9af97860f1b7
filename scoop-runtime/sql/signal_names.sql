-- Returns the names of the signals that sagas await: of living programs, or of all programs that have ever started.
-- Locks: nothing.
-- $1 whether only those of living programs
SELECT DISTINCT step ->> 'awaits'
FROM scoop.definition d
CROSS JOIN LATERAL jsonb_array_elements(d.steps) step
WHERE step ? 'awaits' AND (NOT $1 OR EXISTS (SELECT FROM scoop.worker w WHERE d.id = ANY (w.definitions)))
