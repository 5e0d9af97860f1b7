-- Which of these runs have ended, and what is shown of them?
-- Locks: nothing.
-- $1 the roots and $2 the ids of the runs; $3 the handler, $4 the topic, $5 the outcomes; $6 the other fields by which they are found, each
-- with its values; $7 since and $8 until when they ended; $9 a code in the reason of the rollback or in its latest failure; $10 the maximum
-- length of the lineage; each null for all, but for the outcomes, and no list of fields for none
SELECT {ended_shown}, scoop.shown_failure(r.rollback_failure) AS other_failure
FROM unnest($1::uuid[], $2::uuid[]) AS a (root, id)
CROSS JOIN LATERAL (SELECT r.* FROM scoop.ended_run r WHERE r.root = a.root AND r.id = a.id OFFSET 0) r
{ended_by}
WHERE ($3::text IS NULL OR r.handler = $3)
  AND ($4::text IS NULL OR r.topic = $4)
  AND r.outcome::text = ANY ($5)
  AND ($7::timestamptz IS NULL OR r.ended_at >= $7)
  AND ($8::timestamptz IS NULL OR r.ended_at < $8)
  AND ($9::text IS NULL OR EXISTS (
      SELECT FROM unnest(ARRAY[r.failure, r.rollback_failure]) any_failure
      WHERE jsonb_path_exists(scoop.shown_failure(any_failure), '$.** ? (@.type == $code)', jsonb_build_object('code', $9))))
  AND ($10::int IS NULL OR cardinality(r.lineage) <= $10)
  AND {found_others}
