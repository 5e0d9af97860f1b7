-- Which failed rollbacks differ between their list and the record? One that is settled has none by the record.
-- Locks: nothing.
-- $1 the hierarchies to leave out
SELECT root, run, coalesce(kept.message_id, recorded.message_id) AS message_id,
       coalesce(kept.handler, recorded.handler)::text AS handler,
       CASE WHEN kept.handler IS NOT NULL THEN
           to_jsonb(kept) - '{root,run}'::text[] END AS kept,
       CASE WHEN recorded.handler IS NOT NULL THEN
           to_jsonb(recorded) - '{root,run}'::text[] END AS recorded
FROM scoop.rollback_failure kept
FULL JOIN scoop.recorded_rollback_failure recorded USING (root, run)
WHERE (kept.parent, kept.depth, kept.handler, kept.message_id, kept.failed_at)
        IS DISTINCT FROM (recorded.parent, recorded.depth, recorded.handler, recorded.message_id, recorded.failed_at)
  AND root NOT IN (SELECT left_out FROM unnest($1::uuid[]) left_out)
ORDER BY 1, 2
