//! Plans of launches with large payloads.

use super::*;

/// The number of blocks of temporary files that the parts of a plan wrote, each with those below it.
fn blocks_written_aside(plan: &serde_json::Value) -> i64 {
    let below = plan["Plans"].as_array().into_iter().flatten().map(blocks_written_aside);
    plan["Temp Written Blocks"].as_i64().unwrap() + below.sum::<i64>()
}

#[tokio::test]
async fn large_payloads_are_written_once() {
    let pool = database("payloads").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let ids = |count: usize| {
        let ids: Vec<_> = (0..count).map(|_| Uuid::now_v7().to_string()).collect();
        format!("'{{{}}}'", ids.join(","))
    };
    let (root, first, second) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
    let runs = format!(
        "INSERT INTO scoop.handler (topic, handler) VALUES ('large', 'large');
         INSERT INTO scoop.message (id, topic, payload) VALUES ('{root}', 'large', '0');
         INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
         SELECT '{root}', id, ARRAY['{root}', id], '{root}', 'large', 'large', 'running', id, 1, now()
         FROM unnest('{{{first},{second}}}'::uuid[]) AS run (id)",
    );
    sqlx::raw_sql(AssertSqlSafe(runs)).execute(&pool).await.unwrap();
    // 20 MB, five times what a statement may have in memory.
    let count = 100;
    let each = |value: &str| format!("array_fill({value}, ARRAY[{count}])");
    let (topics, none) = (each("'large'::text"), each("NULL::jsonb"));
    let payloads = each("to_jsonb(repeat('0123456789', 20000))");
    let places: Vec<_> = (1..=count).rev().map(|place| place.to_string()).collect();
    let places = format!("'{{{}}}'", places.join(","));
    let messages = || {
        format!(
            "{}, {places}, {}, {}, {topics}, {payloads}, {none}, {}",
            each("1"),
            ids(count),
            ids(count),
            ids(count)
        )
    };
    let of_one = format!(
        "'{root}', '{first}', 1, 'step', NULL, 0, NULL, 1, NULL, false, NULL, NULL, NULL, gen_random_uuid(), NULL, 1, \
         NULL, NULL, NULL, {count}, NULL, NULL, 'w', {}",
        messages(),
    );
    let of_many = format!(
        "'{{{root}}}', '{{{second}}}', '{{1}}', '{{step}}', '{{NULL}}', '{{0}}', '{{NULL}}', '{{1}}', '{{NULL}}', \
         '{{false}}', '{{NULL}}', '{{NULL}}', '{{NULL}}', ARRAY[gen_random_uuid()], '{{NULL}}', '{{1}}', '{{NULL}}', \
         '{{NULL}}', '{{NULL}}', '{{{count}}}', '{{NULL}}', NULL, 'w', {}",
        messages(),
    );
    let by_client = format!(
        "{}, {}, {}, {}, {topics}, {payloads}, {none}, {}, {}",
        ids(count),
        ids(count),
        ids(count),
        ids(count),
        each("NULL::timestamptz"),
        each("NULL::timestamptz")
    );
    for (at, (statement, values)) in (1..).zip([
        ("settle_launch_one", of_one),
        ("settle_launch_many", of_many),
        ("message_insert_many", by_client),
    ]) {
        let plan = carried_out(&pool, statement, &values).await;
        assert_eq!(blocks_written_aside(&plan), 0, "{statement}: {plan:#}");
        let published = "SELECT count(*) FROM scoop.message WHERE length(payload::text) > 200000";
        let published: i64 = sqlx::query_scalar(published).fetch_one(&pool).await.unwrap();
        assert_eq!(published, at * 100, "{statement}");
    }
    done(pool).await;
}
