-- The queues of `own_queue` that may have a ready run, `near_queue`. Of few queues, these are all. Of many, those whose handler has a
-- ready run: a look finds the first ready handler from one of the own names on, and the next look begins at the first own name after
-- it. So there are no more looks than own names, nor than ready handlers: neither many own queues without a run cost anything, nor many
-- queues of others. A handler of which a position is known has no look, and no look reads beyond the next such handler: there may be
-- dead entries before the position.
own_name AS MATERIALIZED (
    SELECT array_agg(DISTINCT q.handler ORDER BY q.handler) AS names,
           array_agg(DISTINCT q.handler ORDER BY q.handler)
               FILTER (WHERE num_nonnulls(q.reached, q.reached_high, q.reached_low) > 0) AS known
    FROM own_queue q
    HAVING count(*) > 20
),
-- the place of a text among sorted ones by width_bucket: how many of them are not after it
look (handler, place) AS (
    SELECT NULL::text, 1 FROM own_name
    UNION ALL
    SELECT CASE WHEN own.is_known THEN own.name ELSE first.handler END,
           CASE WHEN own.is_known THEN l.place + 1
                WHEN first.handler IS NOT NULL THEN width_bucket(first.handler, own.names) + 1
                ELSE width_bucket(own.until, own.names) END
    FROM look l
    CROSS JOIN LATERAL (
        SELECT o.names, o.names[l.place] AS name,
               (o.known[width_bucket(o.names[l.place], o.known)] = o.names[l.place]) IS TRUE AS is_known,
               o.known[width_bucket(o.names[l.place], o.known) + 1] AS until
        FROM own_name o
        WHERE l.place <= cardinality(o.names)
        OFFSET 0
    ) own
    LEFT JOIN LATERAL (
        (SELECT r.handler::text FROM scoop.run r
         WHERE r.state = 'ready' AND r.handler >= own.name AND own.until IS NULL AND NOT own.is_known
         ORDER BY r.handler LIMIT 1)
        UNION ALL
        (SELECT r.handler::text FROM scoop.run r
         WHERE r.state = 'ready' AND r.handler >= own.name AND r.handler < own.until AND NOT own.is_known
         ORDER BY r.handler LIMIT 1)
    ) first ON true
),
near_queue AS MATERIALIZED (
    SELECT q.* FROM own_queue q WHERE (SELECT count(*) FROM own_name) = 0
    UNION ALL
    -- a case, so that this is no join: then it is a look into a hash table
    SELECT q.* FROM own_queue q WHERE CASE WHEN q.handler IN (SELECT l.handler FROM look l WHERE l.handler IS NOT NULL) THEN true END
)
