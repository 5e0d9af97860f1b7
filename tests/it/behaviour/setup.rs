//! Mistakes that prevent a start, and the location of the tables.

use std::time::Duration;

use scoop::errors::SetupError;
use scoop::{Limits, RuntimeError};

use super::*;
use crate::support::Database;

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero => launches(Child);
    step "1" one => done();
}

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => done();
}

handler! {
    Namesake: "root-handler" on Child;
    step "step" step => done();
}

/// Not `Default`, and with another type for the topic of root messages.
struct Needy {
    _dependency: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct AnotherRoot;

#[saga(name = "needy")]
#[subscribes(AnotherRoot)]
impl Needy {
    #[step]
    async fn step(&self, _: &mut Scope<'_>, _: &AnotherRoot) -> Result<()> {
        Ok(())
    }
}

/// Its topic is too long: the derive would refuse it.
#[derive(Serialize, Deserialize)]
struct Distant;

impl Message for Distant {
    const TOPIC: &'static str = "a-topic-that-is-longer-than-the-sixty-three-bytes-of-a-name-in-the-database";
    type Reply = ();
}

handler! {
    DistantHandler: "distant-handler" on Distant;
    step "step" step => done();
}

#[derive(Message, Serialize, Deserialize)]
struct Fail {
    text: String,
}

#[derive(Default)]
struct Failing;

/// Its limits are the largest ones, too.
#[saga(name = "failing", concurrency = 2147483647, rate("2147483647/36525d"), queue = 100_000)]
#[subscribes(Fail)]
impl Failing {
    #[step(timeout = "36525d", retry(max = 1_000_000, backoff = "36525d"))]
    async fn fail(&self, _: &mut Scope<'_>, message: &Fail) -> Result<()> {
        Err(Error::msg(message.text.clone()).into_permanent())
    }
}

/// Takes over the runs of a saga that is still there.
#[derive(Default)]
struct Heir;

#[saga(name = "heir", was = ["former-handler", "root-handler"])]
#[subscribes(Root)]
impl Heir {
    #[step]
    async fn step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Ok(())
    }
}

/// Takes over the same runs as [`Heir`].
#[derive(Default)]
struct SecondHeir;

#[saga(name = "second-heir", was = "former-handler")]
#[subscribes(Root)]
impl SecondHeir {
    #[step]
    async fn step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        Ok(())
    }
}

/// The mistakes that prevent its start.
async fn mistakes(builder: scoop::Builder) -> Vec<SetupError> {
    match builder.start().await {
        Ok(_) => panic!("it started"),
        Err(error) if error.setup().is_empty() => panic!("{error}"),
        Err(error) => error.setup().to_vec(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_mistakes_of_a_program_are_reported_at_once() {
    let builder =
        Scoop::builder().schema("Not\nGood").concurrency(0).limits(Limits::default().payload_bytes_max(0));
    let builder = builder.only::<RootHandler>().only::<Namesake>().only::<Needy>().provide(ChildHandler);
    let builder = builder.only::<RootHandler>();
    let found = mistakes(builder).await;
    let is = |expected: fn(&SetupError) -> bool| found.iter().filter(|found| expected(found)).count();
    let counts = [
        is(|it| matches!(it, SetupError::TooSmall { setting: "concurrency", min: 1, value: 0 })),
        is(|it| matches!(it, SetupError::TooSmall { setting: "payload_bytes_max", .. })),
        is(|it| matches!(it, SetupError::NoDatabase)),
        is(
            |it| matches!(it, SetupError::SchemaName { name, why } if name == "Not\nGood" && why.contains("control")),
        ),
        is(
            |it| matches!(it, SetupError::DuplicateSagaName { name, types } if name == "root-handler" && types.contains("Namesake")),
        ),
        is(
            |it| matches!(it, SetupError::ConflictingTopicTypes { topic, types } if topic == "root-topic" && types.contains("AnotherRoot")),
        ),
        is(
            |it| matches!(it, SetupError::NotProvided { name, type_name } if name == "needy" && type_name.ends_with("Needy")),
        ),
        is(|it| matches!(it, SetupError::NotASaga { type_name } if type_name.ends_with("ChildHandler"))),
    ];
    assert_eq!((counts, found.len()), ([1; 8], 8), "{found:#?}");
    let shown = RuntimeError::from(found).to_string();
    assert!(shown.starts_with("this program cannot start:\n  - "), "{shown}");
    assert!(shown.contains(".provide("), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_provided_twice_is_listed_with_all_other_mistakes() {
    let needy = |dependency| Needy { _dependency: dependency };
    let builder = Scoop::builder().only::<Needy>().provide(needy(1)).provide(needy(2)).concurrency(0);
    let builder = builder.provide(ChildHandler).provide(ChildHandler).provide(ChildHandler);
    let found = mistakes(builder).await;
    let shown = RuntimeError::from(found.clone()).to_string();
    for mistake in [
        "::Needy` was provided twice, and a program has one value of each saga",
        "::ChildHandler` was provided 3 times",
        "::ChildHandler` was provided, but it is none of the sagas that this program runs",
        "concurrency must be >= 1",
        "no database",
    ] {
        assert_eq!(shown.matches(mistake).count(), 1, "{mistake}: {shown}");
    }
    assert_eq!(found.len(), 5, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn former_name_claimed_twice_is_refused() {
    let builder = Scoop::builder().only::<RootHandler>().only::<Heir>().only::<SecondHeir>();
    let found = mistakes(builder).await;
    let names: Vec<_> = found
        .iter()
        .filter_map(|it| match it {
            SetupError::DuplicateSagaName { name, types } => Some((name.as_str(), types.as_str())),
            _ => None,
        })
        .collect();
    let [("former-handler", heirs), ("root-handler", of_root)] = &names[..] else { panic!("{found:#?}") };
    assert!(heirs.contains("::Heir`") && heirs.contains("::SecondHeir`"), "{heirs}");
    assert!(of_root.contains("::RootHandler`") && of_root.contains("::Heir`"), "{of_root}");
}

/// The largest value of each numeric setting, with times that are not [`Duration::MAX`], too, which has a meaning of its own.
fn at_the_maximum(builder: scoop::Builder, time: Duration) -> scoop::Builder {
    let keep = scoop::retention::Retention::default()
        .committed(time)
        .rolled_back(time)
        .unique_keys(time)
        .every(time);
    let builder = builder.concurrency(usize::MAX).retry_for(time).poll_interval(time);
    let limits = Limits::default().payload_bytes_max(usize::MAX).context_bytes_max(usize::MAX);
    builder.retention(keep).limits(limits.failure_text_bytes_max(usize::MAX).depth_max(usize::MAX))
}

#[tokio::test(flavor = "multi_thread")]
async fn program_with_all_settings_at_their_maximum_runs_its_sagas() -> Result<()> {
    let long = "x".repeat(20_000);
    for time in [Duration::MAX, Duration::MAX - Duration::from_nanos(1)] {
        let db = Database::new().await;
        let builder = at_the_maximum(db.scoop(), time).only::<Failing>();
        let scoop = builder.only::<RootHandler>().only::<ChildHandler>().start().await?;
        let client = at_the_maximum(db.scoop(), time).client().await?;
        for launcher in [&scoop, &client] {
            assert_eq!(launcher.launch(Root).await?.ends().await?, Outcome::Committed);
            let failing = launcher.launch(Fail { text: long.clone() }).await?.ends().await?;
            let Outcome::RolledBack(failure) = failing else { panic!("{failing:?}") };
            assert!(failure.message.contains(&long), "{failure}");
            launcher.operate().retention().prune().older_than(time).await?;
        }
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_below_their_minimum_are_refused_by_name_and_bound() {
    let keep = scoop::retention::Retention::default().committed(Duration::ZERO).every(Duration::ZERO);
    let builder = Scoop::builder().concurrency(0).poll_interval(Duration::from_micros(999)).retention(keep);
    let limits = Limits::default().payload_bytes_max(0).context_bytes_max(0).failure_text_bytes_max(255);
    let builder = builder.limits(limits.depth_max(0));
    let shown = RuntimeError::from(mistakes(builder.retry_for(Duration::ZERO)).await).to_string();
    for mistake in [
        "concurrency must be >= 1",
        "depth_max must be >= 1",
        "poll_interval in ms must be >= 1",
        "payload_bytes_max must be >= 1",
        "context_bytes_max must be >= 1",
        "failure_text_bytes_max must be >= 256, but is 255",
        "`Retention::committed` is 0",
        "`Retention::every` is 0",
    ] {
        assert_eq!(shown.matches(mistake).count(), 1, "{mistake}: {shown}");
    }
}

/// As after a logical replication or the restoration of single tables.
#[tokio::test(flavor = "multi_thread")]
async fn programs_start_on_definitions_that_were_copied() -> Result<()> {
    let db = Database::new().await;
    db.execute(
        "INSERT INTO scoop.definition (id, handler, fingerprint, steps) OVERRIDING SYSTEM VALUE
         SELECT n, 'copied', gen_random_uuid(), '[]' FROM generate_series(2, 21) n",
    )
    .await;
    let start = async || {
        let pool = db.another_pool(5).await;
        let builder = Scoop::builder().postgres(pool).only::<RootHandler>().only::<ChildHandler>();
        builder.only::<Failing>().start().await
    };
    let (one, other, third) = tokio::join!(start(), start(), start());
    let (one, other, third) = (one?, other?, third?);
    for scoop in [&one, &other, &third] {
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    }
    let numbers = "SELECT id::text FROM scoop.definition WHERE id > 21 ORDER BY id";
    assert_eq!(db.texts(numbers).await, ["22", "23", "24"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_not_utf8_is_refused_by_its_encoding() -> Result<()> {
    let db = Database::new().await;
    for encoding in ["LATIN1", "SQL_ASCII"] {
        let name = format!("encoded_{}", uuid::Uuid::new_v4().simple());
        db.execute(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"))
            .await;
        let options = (*db.pool().connect_options()).clone().database(&name);
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5).connect_lazy_with(options);
        let builder = || Scoop::builder().postgres(pool.clone());
        let started = builder().only::<RootHandler>().start().await.map(drop);
        let unchanged = builder().only::<RootHandler>().migrate(false).start().await.map(drop);
        let migrated = scoop::migration::migrate(&pool).await;
        pool.close().await;
        db.execute(&format!("DROP DATABASE {name}")).await;
        for refused in [started, unchanged, migrated] {
            let Err(error) = refused else { panic!("it takes {encoding}") };
            assert_eq!(error.setup(), [SetupError::Encoding { encoding: encoding.into() }], "{error:?}");
            let shown = error.to_string();
            assert!(shown.contains(encoding) && shown.contains("ENCODING 'UTF8'"), "{shown}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_of_a_later_version_is_left_alone() {
    let db = Database::new().await;
    db.execute(
        "INSERT INTO scoop.migration (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', true, '', 0)",
    )
    .await;
    let found = mistakes(db.scoop().only::<RootHandler>()).await;
    let [SetupError::SchemaTooNew { schema, found, known }] = &*found else { panic!("{found:?}") };
    assert_eq!((&**schema, *found), ("scoop", 9999));
    assert!(*known < 9999);
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_unlike_that_of_this_version_is_left_alone() {
    let db = Database::new().await;
    let known =
        db.texts("SELECT left(encode(checksum, 'hex'), 12) FROM scoop.migration WHERE version = 1").await;
    db.execute(
        "UPDATE scoop.migration SET checksum = 'other', installed_on = '2026-02-03T04:05:06Z' WHERE version = 1",
    )
    .await;
    // The second time, another migration is missing.
    for before in ["SELECT", "DELETE FROM scoop.migration WHERE version > 1"] {
        db.execute(before).await;
        let found = mistakes(db.scoop().only::<RootHandler>()).await;
        let [differs @ SetupError::SchemaDiffers { version: 1, .. }] = &*found else { panic!("{found:?}") };
        let shown = differs.to_string();
        for part in [
            "schema `scoop`",
            "the checksum 6f74686572 in the database",
            "applied 2026-02-03T04:05:06.000Z",
            &format!("{} in this program", known[0]),
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_schema_works_from_end_to_end() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().schema("warehouse_2").only::<RootHandler>().only::<ChildHandler>().start().await?;
    let root = scoop.launch(Root).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(root.tree().await?.runs().len(), 2);
    let client = db.scoop().schema("warehouse_2").client().await?;
    assert_eq!(client.launch(Root).await?.ends().await?, Outcome::Committed);

    let history = db.history_in("warehouse_2").await;
    assert_eq!(history.count("COMMITTED"), 4, "{history}");
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_schemas_of_one_database_do_not_see_each_other() -> Result<()> {
    let db = Database::new().await;
    let ours = db.start((RootHandler,)).await?;
    let theirs = Scoop::builder().postgres(db.another_pool(5).await).schema("theirs");
    let theirs = theirs.only::<ChildHandler>().start().await?;
    // The child has no handler here, although it has one in the other schema.
    assert_eq!(ours.launch(Root).await?.ends().await?, Outcome::Committed);
    assert_eq!(ours.launch(Child).await?.ends().await?, Outcome::NoHandlers);
    assert_eq!(theirs.launch(Root).await?.ends().await?, Outcome::NoHandlers);
    assert_eq!(theirs.launch(Child).await?.ends().await?, Outcome::Committed);
    assert_eq!(db.history_in("theirs").await.count("EMITTED"), 2);
    Ok(())
}

/// A reserved word, and a name that needs every quote.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_name_that_needs_quotes_works_from_end_to_end() -> Result<()> {
    let db = Database::new().await;
    for (name, quoted) in [("order", "\"order\""), ("Weird \"Name", "\"Weird \"\"Name\"")] {
        let start = || db.scoop().schema(name).only::<RootHandler>().only::<ChildHandler>();
        let scoop = start().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(root.tree().await?.runs().len(), 2);
        let client = db.scoop().schema(name).client().await?;
        let later = client.launch(Root).delay(Duration::from_secs(3600)).await?;
        assert_eq!(client.cancel(later.id(), "not wanted").await?, CancelAnswer::Accepted);
        // The process is notified on the channel of the schema.
        assert!(matches!(later.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(client.rollback(root.id(), "not wanted").await?, RollbackAnswer::Accepted);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        scoop.shutdown().await?;
        // The tables are found to be there.
        start().start().await?.shutdown().await?;
        let history = db.history_in(quoted).await;
        assert_eq!(history.count("ROLLED_BACK"), 3, "{history}");
    }
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn too_small_pool_is_listed_with_all_other_mistakes() {
    let db = Database::new().await;
    let builder = Scoop::builder().postgres(db.another_pool(2).await).schema("").concurrency(0);
    let found = mistakes(builder.only::<RootHandler>()).await;
    let is = |expected: fn(&SetupError) -> bool| found.iter().filter(|found| expected(found)).count();
    let counts = [
        is(|it| matches!(it, SetupError::PoolTooSmall { max: 2, required: 5 })),
        is(|it| matches!(it, SetupError::SchemaName { .. })),
        is(|it| matches!(it, SetupError::TooSmall { setting: "concurrency", .. })),
    ];
    assert_eq!((counts, found.len()), ([1; 3], 3), "{found:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_names_topics_sagas_and_the_pool_are_listed_together() {
    let db = Database::new().await;
    let builder = Scoop::builder().postgres(db.another_pool(2).await);
    let builder = builder.only::<RootHandler>().only::<Namesake>().only::<Needy>().only::<DistantHandler>();
    let found = mistakes(builder).await;
    let shown = RuntimeError::from(found).to_string();
    for mistake in [
        "two sagas are named `root-handler`",
        "saga `needy` was never provided",
        "topic `a-topic-that-is-longer-than",
        "the connection pool allows 2 connections",
    ] {
        assert!(shown.contains(mistake), "{mistake}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_without_tables_gets_an_error_with_the_remedy() -> Result<()> {
    let db = Database::new().await;
    let Err(error) = db.scoop().schema("nowhere").client().await else { panic!("it found tables") };
    assert!(matches!(error.setup(), [SetupError::NoTables { .. }]), "{error:?}");
    let shown = error.to_string();
    for part in ["`nowhere`", "Builder::start", ".schema(..)"] {
        assert!(shown.contains(part), "{shown}");
    }
    let nowhere = db.scoop().schema("nowhere").only::<RootHandler>();
    let Err(error) = nowhere.migrate(false).start().await else { panic!("it found tables") };
    assert!(matches!(error.setup(), [SetupError::NoTables { .. }]), "{error:?}");
    // A client that was made without a check fails at its first operation.
    db.execute("ALTER SCHEMA scoop RENAME TO elsewhere").await;
    let Err(error) = db.client().launch(Root).await else { panic!("it was launched") };
    let shown = error.to_string();
    assert!(shown.contains("does not exist") && shown.contains("Builder::start"), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_migrates_makes_tables_for_programs_that_may_not() -> Result<()> {
    let db = Database::new().await;
    let client = db.scoop().schema("deployed").migrate(true).client().await?;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role}")).await;
    db.execute(&format!("GRANT USAGE ON SCHEMA deployed TO {role}")).await;
    let tables = "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA deployed";
    db.execute(&format!("GRANT {tables} TO {role}")).await;
    db.execute(&format!("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA deployed TO {role}")).await;
    let options = (*db.pool().connect_options()).clone().options([("role", &*role)]);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect_lazy_with(options);
    let builder = || Scoop::builder().postgres(pool.clone()).schema("deployed").only::<RootHandler>();

    let fresh = builder().schema("fresh");
    assert!(matches!(&*mistakes(fresh).await, [SetupError::Denied { .. }]), "it may not create tables");
    builder().start().await?.shutdown().await?;
    let scoop = builder().migrate(false).start().await?;
    let outcome = client.launch(Root).await?.wait().await;
    scoop.shutdown().await?;
    pool.close().await;
    db.execute(&format!("DROP OWNED BY {role}")).await;
    db.execute(&format!("DROP ROLE {role}")).await;
    assert_eq!(outcome?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_on_tables_of_another_version_is_refused() -> Result<()> {
    let db = Database::new().await;
    let newest = db.number("SELECT max(version) FROM scoop.migration").await;
    db.execute("DELETE FROM scoop.migration WHERE version > 1").await;
    let Err(error) = db.scoop().client().await else { panic!("it connected") };
    let expected = SetupError::SchemaTooOld { schema: "scoop".into(), found: 1, known: newest };
    assert_eq!(error.setup(), [expected], "{error:?}");
    Ok(())
}

/// The program itself holds all connections of the pool.
#[tokio::test(flavor = "multi_thread")]
async fn start_without_a_connection_names_the_needed_connections() -> Result<()> {
    let db = Database::new().await;
    let options = (*db.pool().connect_options()).clone();
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5);
    let pool = pool.acquire_timeout(Duration::from_millis(500)).connect_lazy_with(options.clone());
    let mut held = vec![];
    for _ in 0..5 {
        held.push(pool.acquire().await?);
    }
    let builder = Scoop::builder().postgres(pool).listen_directly(options).only::<RootHandler>();
    let Err(error) = builder.start().await else { panic!("it started") };
    assert!(error.is_transient());
    let shown = error.to_string();
    assert!(shown.starts_with("no connection to the database could be opened"), "{error:?}");
    let counts = ": the pool allows 5 connections, and scoop needs 5: 4 that it opens itself, ";
    assert!(shown.contains(counts), "{shown}");
    for part in ["allows 5 connections", "needs 5", "max_connections", "CONNECTION LIMIT"] {
        assert!(shown.contains(part), "{shown}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn start_beyond_the_connection_limit_of_the_role_shows_the_reason_of_the_server() -> Result<()> {
    let db = Database::new().await;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER")).await;
    db.execute(&format!("ALTER ROLE {role} NOSUPERUSER")).await;
    db.execute(&format!("GRANT ALL ON SCHEMA scoop TO {role}")).await;
    db.execute(&format!("GRANT ALL ON ALL TABLES IN SCHEMA scoop TO {role}")).await;
    db.execute(&format!("GRANT ALL ON ALL FUNCTIONS IN SCHEMA scoop TO {role}")).await;
    let options = (*db.pool().connect_options()).clone().username(&role);
    let mut errors = vec![];
    let mut started = false;
    for limit in 0..=scoop::Builder::required_connections() {
        db.execute(&format!("ALTER ROLE {role} CONNECTION LIMIT {limit}")).await;
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5);
        let pool = pool.acquire_timeout(Duration::from_millis(500)).connect_lazy_with(options.clone());
        let builder = Scoop::builder().postgres(pool.clone()).migrate(false);
        match builder.only::<RootHandler>().start().await {
            Ok(scoop) => {
                scoop.shutdown().await?;
                started = limit == scoop::Builder::required_connections();
            }
            Err(error) => errors.push((limit, error)),
        }
        pool.close().await;
    }
    db.execute(&format!("DROP OWNED BY {role}")).await;
    db.execute(&format!("DROP ROLE {role}")).await;
    assert!(started, "{errors:?}");
    assert_eq!(errors.len(), usize::try_from(scoop::Builder::required_connections())?);
    for (limit, error) in errors {
        let expected = "no connection to the database could be opened";
        assert!(error.to_string().starts_with(expected), "{limit}: {error:?}");
        assert!(error.to_string().contains("too many connections for role"), "{limit}: {error}");
    }
    Ok(())
}

/// The steps would take the connections of the engine.
#[tokio::test(flavor = "multi_thread")]
async fn start_with_a_pool_larger_than_the_connection_limit_is_refused() -> Result<()> {
    let db = Database::new().await;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 5; GRANT ALL ON SCHEMA scoop TO {role}"))
        .await;
    db.execute(&format!("GRANT ALL ON ALL TABLES IN SCHEMA scoop TO {role}")).await;
    db.execute(&format!("GRANT ALL ON ALL FUNCTIONS IN SCHEMA scoop TO {role}")).await;
    let options = (*db.pool().connect_options()).clone().username(&role);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(10).connect_lazy_with(options);
    let builder = || Scoop::builder().postgres(pool.clone()).migrate(false).only::<RootHandler>();
    let of_role = mistakes(builder()).await;
    let database = db.pool().connect_options().get_database().unwrap().to_owned();
    db.execute(&format!(
        "ALTER ROLE {role} CONNECTION LIMIT -1; ALTER DATABASE {database} CONNECTION LIMIT 9"
    ))
    .await;
    let of_database = mistakes(builder()).await;
    db.execute(&format!(
        "ALTER DATABASE {database} CONNECTION LIMIT 60; ALTER ROLE {role} CONNECTION LIMIT 10"
    ))
    .await;
    builder().start().await?.shutdown().await?;
    pool.close().await;
    db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    for (found, limit, of) in
        [(of_role, 5, format!("role `{role}`")), (of_database, 9, format!("database `{database}`"))]
    {
        let shown = found[0].to_string();
        for part in [format!("limit of {limit} connections"), of, "needs 10".into()] {
            assert!(shown.contains(&part), "{shown}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn start_without_a_permission_shows_the_error_of_the_server() -> Result<()> {
    let db = Database::new().await;
    let role = format!("limited_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role}")).await;
    let options = (*db.pool().connect_options()).clone().options([("role", &*role)]);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5).connect_lazy_with(options);
    let builder = || Scoop::builder().postgres(pool.clone());
    let fresh = mistakes(builder().schema("fresh").only::<RootHandler>()).await;
    let there = mistakes(builder().only::<RootHandler>()).await;
    let client = builder().client().await;
    pool.close().await;
    db.execute(&format!("DROP ROLE {role}")).await;
    let Err(client) = client else { panic!("it may read the tables") };
    let client = client.setup().to_vec();
    for (found, object) in [(fresh, "database"), (there, "schema scoop"), (client, "schema scoop")] {
        assert!(matches!(&*found, [SetupError::Denied { .. }]), "{found:?}");
        let shown = RuntimeError::from(found).to_string();
        assert!(shown.contains(&format!("permission denied for {object}")), "{shown}");
        assert!(shown.contains("grant"), "{shown}");
    }
    Ok(())
}

/// The first start in an empty database makes the tables, also when several come at once.
#[tokio::test(flavor = "multi_thread")]
async fn several_programs_may_start_in_an_empty_schema_at_once() -> Result<()> {
    let db = Database::new().await;
    let start = async || {
        let pool = db.another_pool(5).await;
        Scoop::builder().postgres(pool).schema("empty").only::<RootHandler>().start().await
    };
    let (one, other) = tokio::join!(start(), start());
    let (one, other) = (one?, other?);
    assert_eq!(one.launch(Root).await?.ends().await?, Outcome::Committed);
    assert_eq!(other.launch(Root).await?.ends().await?, Outcome::Committed);
    Ok(())
}
