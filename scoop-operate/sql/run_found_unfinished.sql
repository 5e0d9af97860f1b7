-- Which of these runs are unfinished, and what is shown of them?
-- Locks: nothing.
-- $1 the roots and $2 the ids of the runs; $3 the handler, $4 the topic, $5 their states in words; $6 the other fields by which they are
-- found, each with its values; $7 since and $8 until when they are in their state; $9 a code in the reason of the rollback or in its latest
-- failure; $10 what they wait for; $11 the maximum length of the lineage; each null for all, and no list of fields for none
SELECT {unfinished_shown},
       CASE WHEN $9::text IS NOT NULL THEN scoop.shown_failure(u.other_failure) END AS other_failure
FROM unnest($1::uuid[], $2::uuid[]) AS a (root, id)
CROSS JOIN LATERAL (
    SELECT u.* FROM scoop.unfinished_run u WHERE u.root = a.root AND u.id = a.id AND u.state <> 'ended' OFFSET 0
) u
CROSS JOIN LATERAL (SELECT u.root, u.message_id) r
WHERE ($3::text IS NULL OR u.handler = $3)
  AND ($4::text IS NULL OR u.topic = $4)
  AND ($5::text[] IS NULL OR u.phase = ANY ($5))
  AND ($7::timestamptz IS NULL OR u.since >= $7)
  AND ($8::timestamptz IS NULL OR u.since < $8)
  AND ($9::text IS NULL OR EXISTS (
      SELECT FROM unnest(ARRAY[u.latest_failure, u.other_failure]) any_failure
      WHERE jsonb_path_exists(scoop.shown_failure(any_failure), '$.** ? (@.type == $code)', jsonb_build_object('code', $9))))
  AND ($10::text[] IS NULL OR u.waits_for = ANY ($10))
  AND ($11::int IS NULL OR cardinality(u.lineage) <= $11)
  AND {found_others}
