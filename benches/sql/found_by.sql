-- Gives each hierarchy fields to find it by: a number of its own, one of ten thousand customers, and a country that all have.
WITH hierarchy AS MATERIALIZED (
    SELECT r.root, r.ended_at, row_number() OVER (ORDER BY r.ended_at, r.root) AS n
    FROM scoop.ended_run r WHERE cardinality(r.lineage) = 2
)
INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
SELECT h.root, field.name, field.value, field.number, h.root, h.ended_at
FROM hierarchy h
CROSS JOIN LATERAL (VALUES
    ('order', to_jsonb(h.n), 0),
    ('customer', to_jsonb('customer ' || h.n % 10000), 1),
    ('country', to_jsonb('DE'::text), 2)
) AS field (name, value, number)
