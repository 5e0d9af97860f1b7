-- Lists which sagas run by themselves, and when first. A schedule that is listed as it is stays
-- where it is; one that changed begins anew.
-- Locks: the new and the changed rows of schedule.
-- $1 the schedules: an array of objects, next_at being empty for never
INSERT INTO scoop.schedule AS listed (topic, handler, every_ms, cron, zone, missed, overlap, next_at)
SELECT topic, handler, every_ms, cron, zone, missed, overlap, coalesce(next_at, 'infinity')
FROM jsonb_to_recordset($1) AS mine (
    topic varchar, handler varchar, every_ms bigint, cron text, zone text, missed text, overlap text,
    next_at timestamptz
)
ORDER BY topic, handler
ON CONFLICT (topic, handler) DO UPDATE SET
    every_ms = excluded.every_ms,
    cron = excluded.cron,
    zone = excluded.zone,
    missed = excluded.missed,
    overlap = excluded.overlap,
    next_at = CASE
        WHEN (listed.every_ms, listed.cron, listed.zone)
            IS DISTINCT FROM (excluded.every_ms, excluded.cron, excluded.zone)
        THEN excluded.next_at ELSE listed.next_at END
WHERE (listed.every_ms, listed.cron, listed.zone, listed.missed, listed.overlap)
    IS DISTINCT FROM (excluded.every_ms, excluded.cron, excluded.zone, excluded.missed, excluded.overlap)
