//! `doctor`, `topology` and `migrate`.

use expect_test::expect;
use scoop::pauses::PauseTarget;
use scoop_embedded::Embedded;
use scoop_operate::OperateExt as _;

use crate::support::{OTHER_WORKER, Order, Orders, Payments, Plan, Shop, program, ran};

#[tokio::test(flavor = "multi_thread")]
async fn topology_has_handlers_and_workers() {
    let mut shop = Shop::open().await;
    shop.run(&["topology"]).await.shows(expect![[r#"
        TOPIC SAGA SINCE WORKERS LIMITS WAITING
        shop.orders orders <time> 1
        shop.payments payments <time> 1

        WORKER STATE SINCE SAGAS SERVICE BUILD PROGRAM ADDRESS
        scoop-rs:<id 1> alive <time> 2 shop 7 <program>/scoop
    "#]]);
    shop.run(&["topology", "--json"]).await.shows(expect![[r#"
        {"kind":"handler","topic":"shop.orders","handler":"orders","since":"<time>","service":"shop","limits":{"concurrency":null,"concurrency_by_key":false,"serial":false,"rate":null,"rate_period_ms":null,"rate_by_key":false,"queue":null,"by":null},"workers":1,"definitions":[2],"waiting":null}
        {"kind":"handler","topic":"shop.payments","handler":"payments","since":"<time>","service":"shop","limits":{"concurrency":null,"concurrency_by_key":false,"serial":false,"rate":null,"rate_period_ms":null,"rate_by_key":false,"queue":null,"by":null},"workers":1,"definitions":[3],"waiting":null}
        {"kind":"worker","worker":"scoop-rs:<id 1>","started_at":"<time>","service":"shop","build":"7","alive":true,"application":"<program>/scoop","address":null,"handlers":["orders","payments"]}
    "#]]);
    shop.scoop.shutdown().await.unwrap();
    shop.run(&["topology"]).await.shows(expect![[r#"
        TOPIC SAGA SINCE WORKERS LIMITS WAITING
        shop.orders orders <time> 0
        shop.payments payments <time> 0
        2> no worker is registered
    "#]]);
    shop.limit_payments().await;
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes", "--json"]).await.shows(expect![[r#"
        {"hierarchy":"<id 2>","message":"<id 3>","outcome":null,"text":null}
    "#]]);
    shop.run(&["topology"]).await.shows(expect![[r#"
        TOPIC SAGA SINCE WORKERS LIMITS WAITING
        shop.orders orders <time> 0
        shop.payments payments <time> 0 concurrency(2, by = order), queue = 1 1+
        2> no worker is registered
    "#]]);
    let shown = shop.run(&["topology", "--json"]).await.stdout;
    let limits = r#""limits":{"concurrency":2,"concurrency_by_key":true,"serial":false,"rate":null,"rate_period_ms":null,"rate_by_key":false,"queue":1,"by":"order"},"workers":0,"definitions":[],"waiting":1}"#;
    assert!(shown.contains(limits), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_has_launches_as_tables_and_graphs() {
    let mut shop = Shop::open().await;
    shop.db
        .execute("INSERT INTO scoop.launches VALUES ('orders', 'reserve', 'shop.payments', true, now()), ('payments', 'gone', 'old', true, NULL)")
        .await;
    let shown = shop.run(&["topology"]).await.stdout;
    assert!(shown.contains("SAGA") && shown.contains("LAUNCHES") && shown.contains("reserve"), "{shown}");
    assert!(!shown.contains("gone"), "{shown}");
    let shown = shop.run(&["topology", "--json"]).await.stdout;
    let launch = r#"{"kind":"launch","saga":"orders","step":"reserve","topic":"shop.payments","declared":true,"seen_at":""#;
    assert!(shown.contains(launch), "{shown}");
    shop.run(&["topology", "--format", "mermaid"]).await.shows(expect![[r#"
        flowchart LR
        classDef retired stroke-dasharray: 4
        t0(["shop.orders"])
        t1(["shop.payments"])
        subgraph v0["shop"]
        s0["orders"]
        s1["payments"]
        end
        t0 --> s0
        t1 --> s1
        s0 -->|"reserve"| t1
    "#]]);
    shop.run(&["topology", "--format", "dot"]).await.shows(expect![[r#"
        digraph topology {
        rankdir=LR;
        t0 [label="shop.orders"];
        t1 [label="shop.payments"];
        subgraph cluster_0 {
        label="shop";
        s0 [label="orders", shape=box];
        s1 [label="payments", shape=box];
        }
        t0 -> s0;
        t1 -> s1;
        s0 -> t1 [label="reserve"];
        }
    "#]]);
    let json = shop.run(&["topology", "--format", "json"]).await.stdout;
    assert!(json.contains(r#""saga": "orders""#), "{json}");
    shop.run(&["topology", "--affected-by", "orders"]).await.shows(expect![[r#"
        DIRECTION SAGA
        downstream payments
    "#]]);
    shop.run(&["topology", "--affected-by", "payments", "--json"]).await.shows(expect![[r#"
        {"upstream":["orders"],"downstream":[]}
    "#]]);
    shop.run(&["topology", "--affected-by", "none"]).await.shows(expect![[r#"
        exit 3
        2> error: no saga is named `none`
    "#]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_what_is_wrong_and_what_to_do() {
    let mut shop = Shop::open().await;
    shop.order(1, Plan::FailToUndo).await;
    // The settings of the server under test are not those of the program.
    let checks = |ran: &crate::support::Ran| {
        let (checks, levels) = (ran.field("check"), ran.field("level"));
        let bad =
            checks.into_iter().zip(levels).filter(|(_, level)| level == "problem" || level == "warning");
        bad.map(|(check, level)| format!("{check}: {level}")).collect::<Vec<_>>()
    };
    let sick = shop.run(&["doctor", "--json"]).await;
    assert_eq!(sick.code, 4);
    assert!(checks(&sick).contains(&"failed rollbacks: problem".to_owned()), "{sick:?}");
    let people = shop.run(&["doctor"]).await;
    let row: Vec<_> = people.stdout.lines().filter(|line| line.contains("failed rollbacks")).collect();
    let [row] = row[..] else { panic!("{people:?}") };
    assert!(row.contains("of `orders` failed in") && people.stdout.contains("-> fix the cause"), "{row}");
    assert!(people.stdout.contains("scoop skip ") && people.stdout.contains(" --reason <why>"), "{row}");

    shop.db
        .execute(
            "INSERT INTO scoop.kept_hierarchy (root, until, failures, error)
             VALUES (gen_random_uuid(), now(), 2, 'a foreign key of table note')",
        )
        .await;
    let kept = shop.run(&["doctor", "--json"]).await;
    assert!(checks(&kept).contains(&"retention: warning".to_owned()), "{kept:?}");
    let text = kept.field("text").join("\n");
    assert!(text.contains("could not be deleted, 2 times: a foreign key of table note"), "{text}");
    assert!(!checks(&kept).contains(&"queue limits: warning".to_owned()), "{kept:?}");

    shop.scoop.shutdown().await.unwrap();
    let gone = shop.run(&["doctor", "--json"]).await;
    let found = checks(&gone);
    assert_eq!((gone.code, found.iter().filter(|it| it.starts_with("workers")).count()), (4, 1), "{gone:?}");
    let follows = |it: &String| it.starts_with("handlers") || it.starts_with("runs without");
    assert!(found.contains(&"workers: problem".to_owned()) && !found.iter().any(follows), "{gone:?}");
    let advice = gone.field("advice").join("\n");
    assert!(!advice.contains("scoop retire"), "{advice}");

    shop.limit_payments().await;
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes"]).await;
    let full = shop.run(&["doctor", "--json"]).await;
    assert!(checks(&full).contains(&"queue limits: warning".to_owned()), "{full:?}");
    let text = full.field("text").join("\n");
    let expected = "1 or more runs wait in the queue of saga `payments`; its limit is 1: launches beyond that are refused";
    assert!(text.contains(expected), "{text}");

    let verbose = shop.run(&["doctor", "--verbose", "--json"]).await;
    let mut all = verbose.field("check");
    all.sort();
    all.dedup();
    expect![[r#"
        autovacuum
        bloat
        client_connection_check_interval
        clock
        clock of the server
        connections
        durability
        failed rollbacks
        idle_in_transaction_session_timeout
        late runs
        pauses
        queue limits
        retention
        rights
        sessions
        slow statements
        standby
        statement_timeout
        stuck runs
        synchronous_commit
        tables
        transactions
        version
        workers
        wraparound"#]]
    .assert_eq(&all.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_slow_statements_if_the_server_has_statistics_of_them() {
    let server = Embedded::builder().setting("shared_preload_libraries", "pg_stat_statements").start();
    let server = server.await.unwrap();
    let pool = sqlx::PgPool::connect_with(server.connect_options()).await.unwrap();
    scoop::migration::migrate(&pool).await.unwrap();
    let doctor = async || {
        let mut command = program(&["doctor", "--json", "--verbose"]);
        command.env("DATABASE_URL", server.url());
        let doctor = ran(command, &mut vec![]).await;
        let texts = doctor.field("check").into_iter().zip(doctor.field("text"));
        let texts = texts.filter(|(check, _)| check == "slow statements").map(|(_, text)| text);
        texts.collect::<Vec<_>>().join("\n")
    };
    let text = doctor().await;
    assert!(text.contains("is not installed"), "{text}");
    sqlx::raw_sql("CREATE SCHEMA \"my stats\"; CREATE EXTENSION pg_stat_statements SCHEMA \"my stats\"")
        .execute(&pool)
        .await
        .unwrap();
    assert_eq!(doctor().await, "no statement takes 100 ms or more on average");
    for _ in 0..10 {
        sqlx::query("SELECT pg_sleep(0.11) FROM scoop.retention").execute(&pool).await.unwrap();
        sqlx::query("SELECT pg_sleep(0.11)").execute(&pool).await.unwrap();
    }
    let text = doctor().await;
    assert!(
        text.contains(" ms on average, in 10 calls: ") && text.contains("FROM scoop.retention"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "one of the two is about the tables: {text}");
    pool.close().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_sees_open_transactions_dead_workers_and_stuck_runs() {
    let mut shop = Shop::open().await;
    shop.unpaid_order(1).await;
    shop.scoop.shutdown().await.unwrap();
    shop.db
        .execute(
            "INSERT INTO scoop.worker (id, lock_key, backend, role, topics, handlers, definitions, started_at)
             SELECT '0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a', 7, 0, oid, '{shop.orders}', '{orders}', '{1}', now()
             FROM pg_roles WHERE rolname = current_user;
             UPDATE scoop.run SET state = 'stuck', reason = 'the step `pack` is gone' WHERE handler = 'payments'",
        )
        .await;
    let mut open = shop.db.pool().begin().await.unwrap();
    sqlx::query("SELECT 1").execute(&mut *open).await.unwrap();
    let doctor = shop.run(&["doctor", "--json", "--open-for", "0s"]).await;
    let texts = doctor.field("text").join("\n");
    for part in [
        "is stuck: the step `pack` is gone",
        "no worker lives: the runs of 2 handlers wait",
        "(idle in transaction) has a transaction open for",
    ] {
        assert!(texts.contains(part), "{part} is missing: {texts}");
    }
    assert_eq!(doctor.code, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_advises_no_retry_of_a_run_whose_saga_no_program_has() {
    let mut shop = Shop::open().await;
    shop.unpaid_order(1).await;
    shop.scoop.shutdown().await.unwrap();
    shop.db.execute("UPDATE scoop.run SET ready_at = clock_timestamp() WHERE handler = 'payments'").await;
    let other = shop.db.scoop().only::<Orders>().start().await.unwrap();
    let doctor = shop.run(&["doctor", "--json"]).await;
    let found = doctor.field("check").iter().position(|check| check == "runs without a program").unwrap();
    let [text, advice] = ["text", "advice"].map(|field| doctor.field(field)[found].clone());
    assert!(
        text.contains("` is ready: no living program has saga `payments`") || text.contains("` is pending: "),
        "{text}"
    );
    assert!(!text.contains("stuck"), "{text}");
    assert_eq!(advice, "start a program that has the saga; it goes on then");
    assert!(
        !doctor.field("check").iter().any(|check| check == "waits without an end"),
        "its handler is registered"
    );

    shop.db
        .execute("UPDATE scoop.handler SET retired_at = clock_timestamp() WHERE handler = 'payments'")
        .await;
    let doctor = shop.run(&["doctor", "--json"]).await;
    let found = doctor.field("check").iter().position(|check| check == "waits without an end").unwrap();
    let text = doctor.field("text")[found].clone();
    assert!(text.starts_with("1 run of `payments` on topic `"), "{text}");
    assert!(
        text.ends_with("the handler is retired, no living program has it, and no deadline ends the wait"),
        "{text}"
    );
    shop.db.execute("UPDATE scoop.run SET give_up_at = clock_timestamp() + interval '1 day'").await;
    let doctor = shop.run(&["doctor", "--json"]).await;
    assert!(!doctor.field("check").iter().any(|check| check == "waits without an end"), "a deadline ends it");
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_counts_pauses_and_handlers_beyond_the_first() {
    let mut shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler) SELECT 't' || n, 'h' || n FROM generate_series(1, 25) AS n;
             INSERT INTO scoop.pause (kind, name, source) SELECT 'topic', 't' || n, 'ann' FROM generate_series(1, 25) AS n",
        )
        .await;
    let doctor = shop.run(&["doctor", "--json"]).await;
    let (checks, texts) = (doctor.field("check"), doctor.field("text").join("\n"));
    for (check, text) in
        [("handlers", "15 more handlers have no living program"), ("pauses", "15 more pauses are in force")]
    {
        assert_eq!(checks.iter().filter(|it| *it == check).count(), 11, "{doctor:?}");
        assert!(texts.contains(text), "{texts}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_saga_with_a_living_program_is_a_warning_until_a_program_starts_again() {
    let mut shop = Shop::open().await;
    let handlers = async |shop: &mut Shop| {
        let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
        let found = doctor.field("check").iter().position(|check| check == "handlers").unwrap();
        ["level", "text", "advice"].map(|field| doctor.field(field)[found].clone())
    };
    let [level, text, _] = handlers(&mut shop).await;
    assert_eq!((&*level, &*text), ("good", "each of 2 handlers has a living program"));
    shop.scoop.operate().handlers().retire("shop.payments", "payments").await.unwrap();
    let [level, text, advice] = handlers(&mut shop).await;
    let found = "saga `payments` is retired and has a living program: new messages of topic `shop.payments` do not reach it";
    assert_eq!((&*level, &*text), ("warning", found));
    assert!(advice.contains("restart the program"), "{advice}");
    assert!(advice.ends_with("scoop redeliver shop.payments"), "{advice}");
    let restarted = shop.db.scoop().only::<Orders>().only::<Payments>().start().await.unwrap();
    assert_eq!(handlers(&mut shop).await[0], "good");
    restarted.shutdown().await.unwrap();
}

/// The commands have names that begin as options do, and blanks.
#[tokio::test(flavor = "multi_thread")]
async fn commands_that_doctor_advises_are_lines_that_can_be_copied() {
    let mut shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.handler (topic, handler) VALUES ('-t', '--all of it');
             INSERT INTO scoop.pause (kind, name, source) VALUES ('topic', '-t', 'ann'), ('handler', '-v x', 'ann')",
        )
        .await;
    let doctor = shop.run(&["doctor"]).await;
    let commands: Vec<_> = doctor.stdout.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    for expected in
        ["scoop retire -- -t '--all of it'", "scoop resume --topic=-t", "scoop resume --saga='-v x'"]
    {
        assert!(commands.contains(&expected), "{expected} is missing: {}", doctor.stdout);
        let words = shlex::split(expected).unwrap();
        let words: Vec<_> = words[1..].iter().map(String::as_str).collect();
        let (command, rest) = words.split_first().unwrap();
        let done = shop.run(&[&[*command, "--yes"], rest].concat()).await;
        assert_eq!(done.code, 0, "{expected}: {done:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_has_nothing_to_say_about_a_healthy_shop_on_a_server_with_good_settings() {
    let settings = [
        ("shared_preload_libraries", "pg_stat_statements"),
        ("client_connection_check_interval", "10s"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
    ];
    let server = Embedded::builder();
    let server = settings.into_iter().fold(server, |server, (name, value)| server.setting(name, value));
    let server = server.start().await.unwrap();
    let pool = sqlx::PgPool::connect_with(server.connect_options()).await.unwrap();
    sqlx::raw_sql("CREATE EXTENSION pg_stat_statements").execute(&pool).await.unwrap();
    let scoop = scoop::Scoop::builder().postgres(pool.clone()).only::<Orders>().start().await.unwrap();
    let order = Order { number: 1, plan: Plan::Commit, card: String::new() };
    scoop.launch(order).await.unwrap().wait().await.unwrap();
    let doctor = async |args: &[&str]| {
        let mut command = program(&[&["doctor"], args].concat());
        command.env("DATABASE_URL", server.url());
        ran(command, &mut vec![]).await
    };
    doctor(&[]).await.shows(expect![[r#"
        2> 0 problems, 0 warnings, 27 checks found nothing
    "#]]);
    let all = doctor(&["--verbose", "--json"]).await;
    assert_eq!(all.code, 0);
    let checks = all.field("level").into_iter().zip(all.field("check"));
    let checks: Vec<_> = checks.map(|(level, check)| format!("{level} {check}")).collect();
    expect![[r#"
        good version
        good standby
        good autovacuum
        good durability
        good synchronous_commit
        good statement_timeout
        good idle_in_transaction_session_timeout
        good client_connection_check_interval
        good connections
        good sessions
        good wraparound
        good clock
        good transactions
        good tables
        good bloat
        good slow statements
        good rights
        good workers
        good handlers
        good definitions
        good clock of the server
        good pauses
        good failed rollbacks
        good stuck runs
        good late runs
        good queue limits
        good retention"#]]
    .assert_eq(&checks.join("\n"));
    let texts = all.field("text").join("\n");
    for part in [
        "PostgreSQL ",
        " connections are in use: ",
        "by `scoop-cli`",
        "1 worker lives",
        "0 runs are unfinished",
    ] {
        assert!(texts.contains(part), "{part} is missing: {texts}");
    }
    scoop.shutdown().await.unwrap();
    pool.close().await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_notes_workers_with_different_definitions() {
    let mut shop = Shop::open().await;
    let definitions = async |shop: &mut Shop| {
        let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
        let found = doctor.field("check").iter().position(|check| check == "definitions").unwrap();
        (
            doctor.field("level")[found].clone(),
            doctor.field("text")[found].clone(),
            doctor.field("advice")[found].clone(),
        )
    };
    let (level, text, _) = definitions(&mut shop).await;
    assert_eq!((&*level, &*text), ("good", "all living workers have the same definition of each saga"));
    shop.register_worker("'{1000,1000}'").await;
    let (level, text, advice) = definitions(&mut shop).await;
    assert_eq!(level, "note");
    assert!(
        text.starts_with("living workers have different definitions of saga `orders`: 1 worker has"),
        "{text}"
    );
    let other = format!(", 1 worker has definition 1000 (scoop-rs:{OTHER_WORKER} of ");
    assert!(text.contains(&other) && text.ends_with(')'), "{text}");
    assert!(advice.starts_with("finish the deployment"), "{advice}");
    assert!(advice.contains("If these are two sagas, rename one of them"), "{advice}");
    shop.remove_worker().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_run_that_is_due_for_long_is_late() {
    let mut shop = Shop::open().await;
    let late = async |shop: &mut Shop| {
        let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
        let found = doctor.field("check").iter().position(|check| check == "late runs").unwrap();
        (doctor.field("level")[found].clone(), doctor.field("text")[found].clone())
    };
    let good = "0 runs are unfinished, and none that is due waits for long";
    assert_eq!(late(&mut shop).await, ("good".into(), good.into()));
    let pause = PauseTarget::handler("payments");
    shop.scoop.operate().pauses().pause(&pause).await.unwrap();
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes"]).await;
    // Only the other worker has this definition.
    shop.register_worker("'{1000,1000}'").await;
    shop.db
        .execute(
            "UPDATE scoop.run SET reserved_for = 1000, ready_at = now() - interval '5 min', last_event_at = now() - interval '5 min'
             WHERE handler = 'payments'",
        )
        .await;
    let (level, text) = late(&mut shop).await;
    assert!(level == "good", "{text}");
    shop.scoop.operate().pauses().resume(&pause).await.unwrap();
    let (level, text) = late(&mut shop).await;
    let found = "saga `payments`: 1 run is due and waits for a slot, the longest for 5m";
    assert!(level == "warning" && text.starts_with(found), "{text}");
    shop.remove_worker().await;
}

/// More newer runs than a page of the list reads.
#[tokio::test(flavor = "multi_thread")]
async fn run_that_is_due_for_long_is_late_behind_many_newer_ones_that_sleep() {
    let mut shop = Shop::open().await;
    shop.scoop.operate().pauses().pause(PauseTarget::handler("payments")).await.unwrap();
    shop.run(&["launch", "shop.payments", r#"{"order":1}"#, "--yes"]).await;
    shop.register_worker("'{1000,1000}'").await;
    shop.db
        .execute(
            "UPDATE scoop.run SET reserved_for = 1000, ready_at = now() - interval '5 min', last_event_at = now() - interval '5 min'
             WHERE handler = 'payments'",
        )
        .await;
    let orders = (1..=2_100).map(|number| Order { number, plan: Plan::Commit, card: String::new() });
    shop.scoop.launch_all(orders).delay(std::time::Duration::from_secs(3_600)).await.unwrap();
    shop.scoop.operate().pauses().resume(PauseTarget::handler("payments")).await.unwrap();
    let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
    let found = doctor.field("check").iter().position(|check| check == "late runs").unwrap();
    let text = doctor.field("text")[found].clone();
    assert!(text.starts_with("saga `payments`: 1 run is due and waits for a slot"), "{text}");
    shop.remove_worker().await;
}

/// Another program has written them.
#[tokio::test(flavor = "multi_thread")]
async fn doctor_says_that_runs_of_many_sagas_were_not_counted() {
    let mut shop = Shop::open().await;
    shop.db
        .execute(
            "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
             SELECT id, id, ARRAY[id, id], id, 'forged' || n, 'forged' || n, now()
             FROM generate_series(1, 1000) n CROSS JOIN LATERAL (SELECT md5('run' || n)::uuid AS id) ids",
        )
        .await;
    let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
    let found = doctor.field("check").iter().position(|check| check == "sagas with runs").unwrap();
    assert_eq!(doctor.field("level")[found], "note");
    let text = &doctor.field("text")[found];
    assert!(text.starts_with("runs of 1000 sagas or more are in the same state"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_below_many_that_wait_for_it_is_named_with_its_commands() {
    let mut shop = Shop::open().await;
    let order = shop.order(1, Plan::Deep(12)).await;
    let lowest = order.tree().await.unwrap().runs().last().unwrap().id();
    let doctor = shop.run(&["doctor", "--json", "--verbose"]).await;
    let found = doctor.field("check").into_iter().zip(doctor.field("level")).zip(doctor.field("advice"));
    let found: Vec<_> = found.filter(|((check, _), _)| check == "failed rollbacks").collect();
    assert!(found.iter().all(|((_, level), _)| level == "problem"), "{found:?}");
    let retry = format!("scoop retry {lowest}");
    assert!(found.iter().any(|(_, advice)| advice.contains(&retry)), "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_role_looks_and_changes_nothing() {
    let shop = Shop::open().await;
    let order = shop.unpaid_order(1).await.id().to_string();
    let role = format!("reader_{}", uuid::Uuid::new_v4().simple());
    shop.db
        .execute(&format!(
            "CREATE ROLE {role};
             GRANT USAGE ON SCHEMA scoop TO {role};
             GRANT SELECT ON ALL TABLES IN SCHEMA scoop TO {role};
             GRANT EXECUTE ON FUNCTION scoop.schema_version TO {role}"
        ))
        .await;
    let mut ids = vec![];
    let mut reader = async |args: &[&str]| {
        let mut command = shop.command(args);
        command.env("PGOPTIONS", format!("-c role={role}"));
        ran(command, &mut ids).await
    };
    reader(&["runs"]).await.shows(expect![[r#"
        RUN SAGA STATE SINCE ABOUT
        <id 1> payments awaiting signal <time> awaits `shop.paid` with key `order 1`
        <id 2> orders waiting <time> waits for children
    "#]]);
    reader(&["cancel", &order, "--reason", "no", "--yes"]).await.shows(expect![[r#"
        exit 1
        2> error: a cancellation could not be requested, since the role of the connection lacks a right: permission denied for table message_event; the guide lists the GRANTs that each role needs
    "#]]);
    reader(&["retry", "--state", "stuck", "--yes"]).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    reader(&["cancel", "--handler", "payments", "--reason", "no", "--yes"]).await.shows(expect![[r#"
        exit 1
        accepted: 0 runs
        not requested: 1 run
        2> error: a cancellation could not be requested, since the role of the connection lacks a right: permission denied for table message_event; the guide lists the GRANTs that each role needs
    "#]]);
    reader(&["launch", "shop.payments", r#"{"order":1}"#, "--yes"]).await.shows(expect![[r#"
        exit 1
        2> error: a message could not be launched, since the role of the connection lacks a right: permission denied for function launch; the guide lists the GRANTs that each role needs
    "#]]);
    for args in [
        &["tree", &order][..],
        &["explain", &order],
        &["counts"],
        &["topology"],
        &["events"],
        &["timeline", &order],
    ] {
        let ran = reader(args).await;
        assert!(ran.code == 0 && !ran.stdout.is_empty(), "{args:?}: {ran:?}");
    }
    let doctor = reader(&["doctor", "--json"]).await;
    let found = doctor.field("check").iter().position(|check| check == "rights").unwrap();
    assert_eq!(doctor.field("level")[found], "note");
    assert!(doctor.field("text")[found].contains("it lacks "), "{doctor:?}");
    assert!(doctor.field("check").contains(&"sessions".to_owned()), "{doctor:?}");
    shop.db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_on_request() {
    let mut shop = Shop::open().await;
    shop.run(&["migrate", "--yes"]).await.shows(expect![[r#"
        the tables are up to date
    "#]]);
    let other = ["--schema", "other"];
    shop.run(&[&["migrate", "--dry-run"], &other[..]].concat()).await.shows(expect![[r#"
        would make the tables in schema `other`
    "#]]);
    let doctor = shop.run(&[&["doctor", "--json"], &other[..]].concat()).await;
    assert_eq!(doctor.code, 4);
    let advice = doctor.field("advice");
    let makes = "a program with sagas makes them when it starts; to make them before: scoop migrate";
    assert!(advice.iter().any(|advice| advice == makes), "{advice:?}");
    shop.run(&[&["migrate"], &other[..]].concat()).await.shows(expect![[r#"
        exit 2
        2> error: this changes something, and no terminal is there for a question: add --yes, or --dry-run to see what would be done
    "#]]);
    shop.run(&[&["migrate", "--yes", "--json"], &other[..]].concat()).await.shows(expect![[r#"
        {"changed":true}
    "#]]);
    shop.run(&[&["runs"], &other[..]].concat()).await.shows(expect![[r#"
        2> no such runs
    "#]]);
    let doctor = shop.run(&[&["doctor"], &other[..]].concat()).await;
    let lines: Vec<_> = doctor.stdout.lines().skip_while(|line| !line.contains(" workers ")).collect();
    assert!(
        lines[0].starts_with("note ") && lines[0].ends_with("no program with sagas has started here yet")
    );
    assert!(lines[1].trim().starts_with("-> start one, or make one from the template"), "{lines:?}");
    assert_eq!(lines[2], "    cargo generate --path template --name parcels --destination ..");
    let sql = ran(program(&["migrate", "--sql", "--schema", "other"]), &mut vec![]).await;
    assert!(
        sql.stdout.starts_with("-- 0001_tables.sql\n") && sql.stdout.contains("\"other\".run"),
        "{}",
        sql.code
    );
}
