-- Makes one finished hierarchy with as many runs as the setting bench.copies says, two hours old. Each run has up to 50 children,
-- two steps and an output.
SELECT set_config('session_replication_role', 'replica', false) FROM pg_roles WHERE rolname = current_user AND rolsuper;

CREATE TEMP TABLE large_run AS
WITH RECURSIVE run (n, parent, above) AS (
    SELECT 0, NULL::int, ARRAY[md5('large hierarchy')::uuid]
  UNION ALL
    SELECT child.n, run.n, run.above || md5('large run' || run.n)::uuid
    FROM run
    CROSS JOIN LATERAL generate_series(run.n * 50 + 1, least(run.n * 50 + 50, current_setting('bench.copies')::int - 1)) child (n)
)
SELECT n, above, above || md5('large run' || n)::uuid AS lineage, md5('large message' || n)::uuid AS message FROM run;

INSERT INTO scoop.message (id, topic, payload, created_at)
SELECT r.message, 'large', '{"number": 7}', now() - interval '2 hours' FROM large_run r;

INSERT INTO scoop.message_event
    (message_id, type, coroutine_name, coroutine_identifier, step, cooperation_lineage, created_at)
SELECT r.message, e.type::scoop.message_event_type, CASE WHEN e.nth > 0 OR r.n > 0 THEN 'large' END,
       'scoop-rs:large', e.step, CASE WHEN e.nth = 0 THEN r.above ELSE r.lineage END,
       now() - interval '2 hours' + e.nth * interval '1 second'
FROM large_run r
CROSS JOIN (VALUES (0, 'EMITTED', NULL), (1, 'SEEN', NULL), (2, 'SUSPENDED', 'first'), (3, 'SUSPENDED', 'second'),
                   (4, 'COMMITTED', NULL)) AS e (nth, type, step);

INSERT INTO scoop.ended_run (root, id, parent, lineage, message_id, topic, handler, outcome, ended_at)
SELECT r.lineage[1], r.lineage[cardinality(r.lineage)], CASE WHEN r.n > 0 THEN r.above[cardinality(r.above)] END, r.lineage, r.message,
       'large', 'large', 'committed', now() - interval '2 hours' + 4 * interval '1 second'
FROM large_run r;

INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
SELECT r.lineage, 'large', 'Output of first#0000000000', '{"number": 7}' FROM large_run r;
