-- Marks kept signals whose time is over, the first ones first, and returns how many there are of each name, with one of
-- their keys. Marked ones are in no index of kept signals any more, so that no later look at these reads them.
-- The condition on `reached` always holds: it chooses the index, see `0001_tables.sql`.
-- Locks: the marked rows; skips locked ones.
-- $1 how many at most
WITH marked AS (
    UPDATE scoop.signal s SET expired = true
    WHERE s.id = ANY (ARRAY(
        SELECT o.id FROM scoop.signal o
        WHERE o.delivered_at IS NULL AND NOT o.expired AND o.reached >= 0
          AND o.kept_until <= (SELECT clock_timestamp())
        ORDER BY o.kept_until
        LIMIT $1
        FOR UPDATE SKIP LOCKED))
    RETURNING s.name, s.key
)
SELECT name, min(key) AS key, count(*) AS signals FROM marked GROUP BY name ORDER BY name
