//! Plans of lists of runs that are found by fields.

use scoop_operate::OperateExt as _;

use super::*;

/// As many finished hierarchies as asked, each with a run and a child: found by their number, and all by one customer. One in a hundred
/// children is found by itself.
const FOUND: &str = "
    INSERT INTO scoop.message (id, topic, payload)
    SELECT md5('{size}message' || n)::uuid, 'found', '{}' FROM generate_series(1, {size}) n;
    INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
    SELECT md5('{size}message' || n)::uuid, type::scoop.message_event_type, 'found',
           ARRAY[md5('{size}root' || n)::uuid, md5('{size}run' || n)::uuid]
    FROM generate_series(1, {size}) n CROSS JOIN LATERAL unnest('{SEEN,COMMITTED}'::text[]) AS type;
    INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
    SELECT root, id, ARRAY[root, id], md5('{size}message' || n)::uuid, 'found', 'found', 'committed', now()
    FROM generate_series(1, {size}) n
    CROSS JOIN LATERAL unnest(ARRAY['run', 'child']) kind
    CROSS JOIN LATERAL (SELECT md5('{size}root' || n)::uuid AS root, md5('{size}' || kind || n)::uuid AS id) ids;
    INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
    SELECT root, name, CASE name WHEN 'order' THEN to_jsonb({size} * 10 + n) ELSE '\"ada\"' END, 0, root,
           now() + n * interval '1 second'
    FROM generate_series(1, {size}) n
    CROSS JOIN LATERAL unnest(ARRAY['order', 'customer']) name
    CROSS JOIN LATERAL (SELECT md5('{size}root' || n)::uuid AS root) ids";

#[tokio::test]
async fn page_of_runs_found_by_a_value_costs_the_same_among_many() {
    let pool = database("found_pages").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let lists = [
        ("run_page_found", "'order', '{30007}', NULL, NULL, 100, NULL, 100, true, true", 2.0),
        ("run_page_found", "'customer', '{\"\\\"ada\\\"\"}', NULL, NULL, 100, NULL, 100, true, true", 100.0),
        (
            "run_page_found",
            "'customer', '{\"\\\"ada\\\"\"}', '2000-01-01Z', gen_random_uuid(), 100, gen_random_uuid(), 100, true, true",
            0.0,
        ),
    ];
    let mut blocks = vec![];
    for size in [3_000, 30_000] {
        let sql = FOUND.replace("{size}", &size.to_string()) + "; VACUUM ANALYZE";
        for statement in sql.split(';') {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&pool).await.unwrap();
        }
        for (statement, values, rows) in lists {
            let plan = carried_out(&pool, statement, values).await;
            assert_eq!(plan["Actual Rows"].as_f64(), Some(rows), "{values}");
            blocks.push(blocks_read(&plan));
        }
    }
    let (few, many) = blocks.split_at(lists.len());
    for (nth, (few, many)) in few.iter().zip(many).enumerate() {
        assert!(
            *many < 2_000 && *many < 2 * few + 20,
            "list {nth}: {many} blocks among many, {few} among few"
        );
    }
    let runs = scoop_runtime::Scoop::client(pool.clone()).operate().runs();
    let page = runs.list().found_by("order", 30_007).found_by("customer", "ada").await.unwrap();
    assert_eq!((page.runs.len(), page.next), (2, None));
    assert_eq!(page.runs[0].label(), "customer=ada order=30007");
    let page = runs.list().found_by("customer", "ada").page(50).await.unwrap();
    assert!(page.runs.len() == 50 && page.next.is_some());
    done(pool).await;
}

/// A hierarchy of many unfinished runs is read only as far as a page needs.
#[tokio::test]
async fn page_of_a_large_hierarchy_reads_a_page_of_it() {
    let pool = database("found_large").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    for statement in [
        "INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, last_event_at)
         SELECT md5('root')::uuid, id, md5('parent')::uuid, ARRAY[md5('root')::uuid, id], md5('message')::uuid, 'many', 'many', now()
         FROM generate_series(1, 20000) n CROSS JOIN LATERAL (SELECT md5('run' || n)::uuid AS id) ids",
        "INSERT INTO scoop.found_by (found, name, value, number, root, launched_at)
         SELECT md5('root')::uuid, 'order', '7', 0, md5('root')::uuid, now()",
        "VACUUM ANALYZE",
    ] {
        sqlx::raw_sql(statement).execute(&pool).await.unwrap();
    }
    for place in ["NULL, NULL, 100, NULL", "now(), md5('root')::uuid, 100, md5('run7')::uuid"] {
        let values = format!("'order', '{{7}}', {place}, 100, true, true");
        let blocks = blocks_of(&pool, "run_page_found", &values).await;
        assert!(blocks < 400, "from {place}: {blocks} blocks");
    }
    let runs = scoop_runtime::Scoop::client(pool.clone()).operate().runs();
    let counts = runs.count().found_by("order", 7).await.unwrap();
    let counts: Vec<_> = counts.unfinished.iter().map(|count| (count.count, count.is_capped)).collect();
    assert_eq!(counts, [(10_000, true)]);
    let (mut listed, mut place) = (0, None);
    loop {
        let page = runs.list().found_by("order", 7).page(1_000).after(place).await.unwrap();
        listed += page.runs.len();
        place = page.next;
        if place.is_none() {
            break;
        }
    }
    assert_eq!(listed, 20_000);
    done(pool).await;
}
