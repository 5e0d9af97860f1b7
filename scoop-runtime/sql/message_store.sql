-- Inserts large messages before the settlement that launches them, in the same transaction. A repeated settlement finds
-- them. If the settlement is void, the transaction is rolled back.
-- Locks: nothing.
-- Arrays with an element for each message: $1 its id, $2 its topic, $3 its payload
-- $4 the value that `scoop_run.claim` must have in this transaction: null outside the transaction of a step
INSERT INTO scoop.message (id, topic, payload)
SELECT m.id, m.topic, m.payload
FROM (
    SELECT pg_catalog.unnest($1::pg_catalog.uuid[]) AS id, pg_catalog.unnest($2::varchar[]) AS topic,
           pg_catalog.unnest($3::pg_catalog.jsonb[]) AS payload
) m
WHERE ($4::pg_catalog.text IS NULL OR pg_catalog.current_setting('scoop_run.claim', true) OPERATOR(pg_catalog.=) $4)
ON CONFLICT (id) DO NOTHING
