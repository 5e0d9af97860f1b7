-- Lists the fields by which messages are found, by topic and in their order. Those that a program redacts by now are left out.
-- Locks: nothing.
SELECT f.topic::text, f.name::text, f.kind
FROM scoop.find_field f
WHERE NOT EXISTS (SELECT FROM scoop.redaction d WHERE d.topic = f.topic AND d.field = f.name)
ORDER BY f.topic, f.number, f.name
