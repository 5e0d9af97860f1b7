-- Which of these hierarchies would be deleted now?
-- Locks: nothing.
-- $1 the roots, $2 for how many seconds committed ones are kept, $3 others, $4 whether the times of their topics count
SELECT asked.root
FROM unnest($1::uuid[]) AS asked (root)
CROSS JOIN LATERAL scoop.prune(asked.root, $2, $3, $4, true) p
WHERE p.verdict = 'deleted'
