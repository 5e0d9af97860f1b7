//! Plans of followers of events.

use super::*;

/// Events, of which a page of a thousand is read at a time. Their ids have the order of their rows: generated ids have it only
/// from millisecond to millisecond, so that the blocks of a page would depend on the speed of the insertion.
const FOLLOWED: &str = "
    INSERT INTO scoop.message_event (id, message_id, type, coroutine_name, cooperation_lineage)
    SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, gen_random_uuid(), 'SUSPENDED', 'followed',
           ARRAY[gen_random_uuid(), gen_random_uuid()]
    FROM generate_series({from}, {to}) n";

/// Also when the planner takes the table for a small one.
#[tokio::test]
async fn a_follower_reads_blocks_in_proportion_to_the_events() {
    let pool = database("followed").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute =
        async |sql: String| sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop).unwrap();
    let (mut there, mut blocks) = (0, vec![]);
    for events in [3_000_i64, 30_000] {
        execute(FOLLOWED.replace("{from}", &(there + 1).to_string()).replace("{to}", &events.to_string()))
            .await;
        there = events;
        let ends =
            "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS nth FROM scoop.message_event) e
            WHERE nth % 1000 = 0 ORDER BY id";
        let ends: Vec<Uuid> = sqlx::query_scalar(ends).fetch_all(&pool).await.unwrap();
        let snapshot: String =
            sqlx::query_scalar("SELECT pg_current_snapshot()::text").fetch_one(&pool).await.unwrap();
        let mut read = 0;
        for after in [Uuid::nil()].into_iter().chain(ends) {
            let values =
                format!("'{after}', 0, 9000000000000000000, '{snapshot}', '{{}}', NULL, NULL, 1000, true");
            let plan = carried_out(&pool, "event_follow", &values).await;
            read += blocks_read(&plan);
        }
        blocks.push(read);
        execute("VACUUM ANALYZE".into()).await;
    }
    assert!(blocks[0] > 3 && blocks[1] < 12 * blocks[0], "{blocks:?} blocks for 3,000 and 30,000 events");
    done(pool).await;
}

/// The lineage of a forged event may have any number of ids.
#[tokio::test]
async fn follower_reads_the_first_and_the_last_id_of_a_long_lineage() {
    let pool = database("followed_lineage").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let forge = "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
        SELECT gen_random_uuid(), 'SUSPENDED', 'forged', md5('root')::uuid || array_agg(gen_random_uuid()) || md5('run')::uuid
        FROM generate_series(1, 10000)";
    sqlx::raw_sql(forge).execute(&pool).await.unwrap();
    let (prepare, _) = prepared("event_follow");
    let read = format!(
        "{prepare};
         CREATE TEMPORARY TABLE page AS EXECUTE p (
             '00000000-0000-0000-0000-000000000000', 0, 9000000000000000000, pg_current_snapshot()::text, '{{}}', NULL, NULL, 10, true);
         SELECT hierarchy = md5('root')::uuid AND run = md5('run')::uuid, octet_length(page::text) FROM page"
    );
    let mut connection = pool.acquire().await.unwrap();
    let row = sqlx::raw_sql(AssertSqlSafe(read)).fetch_one(&mut *connection).await.unwrap();
    connection.close().await.unwrap();
    assert!(sqlx::Row::get::<bool, _>(&row, 0));
    let bytes: i32 = sqlx::Row::get(&row, 1);
    assert!(bytes < 1_000, "{bytes} bytes");
    done(pool).await;
}
