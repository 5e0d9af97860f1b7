-- Records the fields by which messages are found.
-- Locks: the rows of find_field that are new or change.
-- Arrays with an element for each field: $1 the topic, $2 the name, $3 the kind, $4 its number in the message
INSERT INTO scoop.find_field (topic, name, kind, number)
SELECT DISTINCT ON (own.topic, own.name) own.topic, own.name, own.kind, own.number
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[]) AS own (topic, name, kind, number)
ORDER BY own.topic, own.name
ON CONFLICT (topic, name) DO UPDATE SET kind = excluded.kind, number = excluded.number
WHERE (find_field.kind, find_field.number) IS DISTINCT FROM (excluded.kind, excluded.number)
