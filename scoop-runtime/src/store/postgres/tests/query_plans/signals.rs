//! Plans of statements about signals and messages to be joined.

use super::*;

/// Expired signals of one key, and one that is still kept.
const EXPIRED_SIGNALS: &str = "
    INSERT INTO scoop.signal (id, name, key, payload, sent_at, kept_until)
    SELECT gen_random_uuid(), 'paid', '7', '1', now() - interval '2 hours', now() - interval '1 hour' - n * interval '1 ms'
    FROM generate_series(1, 30000) n;
    INSERT INTO scoop.signal (id, name, key, payload, kept_until)
    VALUES (gen_random_uuid(), 'paid', '7', '2', now() + interval '1 hour')";

#[tokio::test]
async fn signals_whose_time_is_over_are_not_read_again() {
    const BLOCKS_MAX: i64 = 60;
    let pool = database("expired_signals").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.signal SET (autovacuum_enabled = false)").await;
    execute(EXPIRED_SIGNALS).await;
    execute("VACUUM ANALYZE scoop.signal").await;
    let deliver = "'{paid}', '{7}', NULL, '{}', false, '20ms'";
    let send = "gen_random_uuid(), 'paid', '7', '3', 3600, gen_random_uuid(), '{}', '{}', '{}', 1, 0, NULL";
    for (statement, values) in [("signal_deliver", deliver), ("signal_send", send)] {
        let blocks = blocks_of(&pool, statement, values).await;
        assert!(blocks < BLOCKS_MAX, "{statement} read {blocks} blocks");
    }
    let store = PostgresStore::new(
        Sessions::new(&pool, 1, &ConnectionSettings::default()),
        &Schema::new("scoop").unwrap(),
    );
    let expired = store.expire_signals(40_000).await.unwrap();
    let paid = SignalKey { name: "paid".into(), key: "7".into() };
    assert_eq!(expired, [ExpiredSignals { to: paid, signals: 30_000 }]);
    assert!(store.expire_signals(40_000).await.unwrap().is_empty());
    execute("VACUUM scoop.signal").await;
    let blocks = blocks_of(&pool, "signal_deliver", "'{}', '{}', '0', '{}', false, '20ms'").await;
    assert!(blocks < BLOCKS_MAX, "a look at all kept signals read {blocks} blocks");
    done(pool).await;
}

/// Waiting messages of one key, each half of them with limits. The time of one is over.
const WAITING_MEMBERS: &str = "
    INSERT INTO scoop.join_member (run, saga, key, topic, message_id, since, expires_at)
    SELECT md5('run' || n)::uuid, 'ship', '7', 'paid', gen_random_uuid(), now() - n * interval '1 s',
           CASE WHEN n = 10000 THEN now() - interval '1 s' WHEN n % 2 = 0 THEN now() + n * interval '1 min' END
    FROM generate_series(1, 20000) n";

#[tokio::test]
async fn overdue_member_is_looked_up_among_many_of_its_key() {
    const BLOCKS_MAX: i64 = 40;
    let pool = database("waiting_members").await;
    migrate(&pool, &Schema::new("scoop").unwrap()).await.unwrap();
    let execute = async |sql: &'static str| sqlx::raw_sql(sql).execute(&pool).await.map(drop).unwrap();
    execute("ALTER TABLE scoop.join_member SET (autovacuum_enabled = false)").await;
    execute(WAITING_MEMBERS).await;
    for looked_at in [false, true] {
        if looked_at {
            execute("VACUUM ANALYZE scoop.join_member").await;
        }
        let behind =
            "'{ship,ship}', '{paid,picked}', 20, now() + interval '10000 min', md5('run10000')::uuid";
        for (statement, values) in [
            ("join_overdue", "'ship', '7', '{paid,picked}', 1000, md5('run10000')::uuid"),
            ("join_oldest", "'ship', '7', '{paid,picked}', 1000"),
            ("join_next_due", "'{ship,ship}', '{paid,picked}', 20, '-infinity', md5('')::uuid"),
            ("join_next_due", behind),
        ] {
            let blocks = blocks_of(&pool, statement, values).await;
            assert!(blocks < BLOCKS_MAX, "{statement}: {blocks} blocks, analyzed: {looked_at}");
        }
    }
    done(pool).await;
}
