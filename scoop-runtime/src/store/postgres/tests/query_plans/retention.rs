//! Plans of deletions.

use super::*;

/// Finished hierarchies, each of a run and a child.
const FINISHED: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5(message || n)::uuid, 'finished', '{}'
    FROM generate_series({from}, {to}) n, (VALUES ('root'), ('child')) messages (message);
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage, created_at)
    SELECT md5(message || n)::uuid, type::scoop.message_event_type, handler,
           (ARRAY[md5('hierarchy' || n)::uuid, md5('run' || n)::uuid, md5('below' || n)::uuid])[:depth],
           '2020-01-01Z'::timestamptz + at * interval '1 second'
    FROM generate_series({from}, {to}) n, (VALUES
        ('root', 'EMITTED', NULL, 1, 1), ('root', 'SEEN', 'saga', 2, 2), ('child', 'EMITTED', 'saga', 2, 3),
        ('child', 'SEEN', 'item', 3, 4), ('child', 'COMMITTED', 'item', 3, 5), ('root', 'COMMITTED', 'saga', 2, 6)
    ) events (message, type, handler, depth, at);
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT lineage[1], lineage[cardinality(lineage)], lineage, md5(message || n)::uuid, 'finished', handler, 'committed',
           '2020-01-01Z'::timestamptz + n * interval '1 second'
    FROM generate_series({from}, {to}) n, (VALUES ('root', 'saga', 2), ('child', 'item', 3)) runs (message, handler, depth)
    CROSS JOIN LATERAL (
        SELECT (ARRAY[md5('hierarchy' || n)::uuid, md5('run' || n)::uuid, md5('below' || n)::uuid])[:depth] AS lineage
    ) l;
    INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
    SELECT ARRAY[md5('hierarchy' || n)::uuid, md5('run' || n)::uuid], 'saga', 'Output of a#0000000000', '1'
    FROM generate_series({from}, {to}) n;
    INSERT INTO scoop.entity_event (name, key, version, message_id, run)
    SELECT 'entity', n::text, 1, gen_random_uuid(), gen_random_uuid() FROM generate_series({from}, {to}) n";

/// Also when the planner takes the tables for small ones.
#[tokio::test]
async fn a_deletion_reads_blocks_in_proportion_to_the_hierarchies() {
    let pool = database("prune").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let mut blocks = vec![];
    for (from, to) in [(1, 200), (201, 10_000)] {
        execute(FINISHED.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())).await;
        let roots: Vec<_> = (from..from + 100).map(|n| format!("md5('hierarchy{n}')::uuid")).collect();
        let values = format!("ARRAY[{}], 7200, false", roots.join(","));
        blocks.push(blocks_of(&pool, "prune_hierarchies", &values).await);
        execute("VACUUM ANALYZE".into()).await;
    }
    let left = "SELECT count(*) FROM scoop.message_event";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&pool).await.unwrap();
    assert_eq!(left, (10_000 - 200) * 6);
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks with 200 and 10,000 hierarchies");
    done(pool).await;
}

/// Also when the planner takes the tables for small ones. What is kept costs nothing.
#[tokio::test]
async fn a_look_for_due_hierarchies_reads_the_same_blocks_among_many_kept_ones() {
    // Half of them ended just now; the others were put off.
    const KEPT: &str = "
        UPDATE scoop.ended_run SET ended_at = now() WHERE topic = 'finished';
        INSERT INTO scoop.kept_hierarchy (root, until)
        SELECT md5('hierarchy' || n)::uuid, now() + interval '1 day' FROM generate_series({from}, {to}, 2) n;
        UPDATE scoop.ended_run r SET put_off = true FROM scoop.kept_hierarchy k WHERE k.root = r.root";
    let pool = database("due").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let numbered = |sql: &str, from: i32, to: i32| {
        sql.replace("{from}", &from.to_string()).replace("{to}", &to.to_string())
    };
    let mut blocks = vec![];
    for (from, to) in [(1, 200), (201, 10_000)] {
        execute(numbered(FINISHED, from, to)).await;
        execute(numbered(KEPT, from, to)).await;
        execute(numbered(FINISHED, from + 1_000_000, from + 1_000_100)).await;
        blocks.push(blocks_of(&pool, "retention_next", "gen_random_uuid(), 7200, 7200, 100, true").await);
        execute("VACUUM ANALYZE".into()).await;
    }
    assert!(blocks[1] < 2 * blocks[0], "{blocks:?} blocks with 200 and 10,000 kept hierarchies");
    done(pool).await;
}
