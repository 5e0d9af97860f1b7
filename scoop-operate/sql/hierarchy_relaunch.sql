-- Launches the first message of a finished hierarchy again, and returns what became of that: see `0007_launches.sql`.
-- Locks: those of scoop.relaunch.
-- $1 the hierarchy, $2 the new one, $3 another payload, $4 the keys of the context that are left out, $5 whether also of one that
-- has committed, $6 whether once more, $7 why and $8 by whom, $9 whether to check only
SELECT r.answer, r.relaunched, r.handlers FROM scoop.relaunch($1, $2, $3, $4, $5, $6, $7, $8, $9) r
