-- Which numbers do these definitions have?
-- Locks: nothing.
-- $1 handlers and $2 fingerprints (pairs)
SELECT d.handler, d.id
FROM unnest($1::text[], $2::uuid[]) AS m (handler, fingerprint)
JOIN scoop.definition d ON d.handler = m.handler AND d.fingerprint = m.fingerprint
