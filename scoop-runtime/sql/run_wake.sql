-- Which of these runs wait for nobody any more? Asked after the children's commit, so that of two last
-- children at least one finds both gone. Those that I have room for, and a program, are mine from now
-- on, as if I had claimed them by run_claim.sql; the others become ready. All of them have begun, so
-- there is no event to write.
-- A run that has gone on since this statement began, and waits for new children that it does not
-- see, has another epoch than when it was looked up, and is left alone.
-- Locks: my row of worker, if I have room for any, as a claim does, and before any other: who holds
-- that goes on to rows of run. If somebody has declared me dead, nothing is mine. Then the rows of
-- run that are woken.
-- $1 the runs: an array of objects with root, id and the time of a child's last event
-- (the filter by type makes the planner take the array for short, so that runs are looked up by index)
-- $2 worker, $3 topics and $4 handlers (pairs) of its program, $5 of how many of the runs, from the first
-- on, it has room for
WITH me AS MATERIALIZED (
    SELECT id FROM scoop.worker WHERE id = $2 AND $5 > 0 FOR KEY SHARE
),
woken AS (
    UPDATE scoop.run r
    SET (state, owner, epoch, ready_at, last_event_at) = (
        SELECT CASE WHEN mine.so THEN 'running' ELSE 'ready' END::scoop.run_state,
               CASE WHEN mine.so THEN $2 END,
               r.epoch + mine.so::int,
               clock_timestamp(),
               CASE WHEN mine.so
                    THEN greatest(clock_timestamp(), r.last_event_at + interval '1 microsecond', w.at + interval '1 microsecond')
                    ELSE greatest(r.last_event_at, w.at) END
        FROM (
            SELECT place <= $5 AND EXISTS (SELECT FROM me) AND r.epoch > r.first_epoch AND EXISTS (
                SELECT FROM unnest($3::text[], $4::text[]) AS own (topic, handler)
                WHERE own.topic = r.topic AND own.handler = r.handler
            ) AS so
        ) mine)
    FROM jsonb_array_elements($1) WITH ORDINALITY AS parent (object, place)
    CROSS JOIN jsonb_to_record(object) AS w (root uuid, id uuid, at timestamptz)
    JOIN scoop.run seen ON seen.root = w.root AND seen.id = w.id
    WHERE (SELECT count(*) FROM me) >= 0
      AND jsonb_typeof(object) = 'object'
      AND r.root = seen.root AND r.id = seen.id AND r.epoch = seen.epoch AND r.state = 'waiting'
      AND NOT EXISTS (
          SELECT FROM scoop.run child
          WHERE child.root = r.root AND child.parent = r.id AND child.state <> 'ended'
      )
    RETURNING r.*
)
SELECT c.state = 'running' AS claimed,
       c.lineage, c.message_id, c.topic, c.handler, c.epoch, c.backward, c.told,
       c.step, c.next_step, c.iteration, c.handler_iteration, c.suspensions, c.outputs, c.failure,
       c.attempts, c.retries, c.context, c.replied, c.failed_before, c.parent IS NOT NULL AS has_parent,
       c.undoing_since IS NOT NULL AS undoing,
       (c.gives_up OR c.give_up_at <= clock_timestamp()) IS TRUE AS overdue,
       CASE WHEN c.state = 'running' THEN (
           SELECT m.payload FROM scoop.message m WHERE m.id = c.message_id
       ) END AS payload,
       CASE WHEN c.state = 'running' THEN (
           SELECT jsonb_agg(
               jsonb_build_object(
                   'rolled_back', child.failure,
                   'rollback_failed', child.rollback_failure,
                   'told', child.told)
               ORDER BY child.turned_back_at, child.id)
           FROM scoop.run child
           WHERE child.root = c.root AND child.parent = c.id AND child.state = 'ended'
       ) END AS failed_children
FROM woken c
