//! Programs of roles that have the rights that the guide lists, and no more.

use std::time::{Duration, SystemTime};

use scoop::errors::SetupError;
use scoop::pauses::PauseTarget;
use scoop::requests::{RepairAnswer, SignalAnswer};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};

use super::followed::begun;
use super::*;
use crate::support::{Database, eventually};

const GUIDE: &str = include_str!("../../../docs/reference/security.md");

/// The roles of the guide, under names of their own, dropped at the end.
struct Roles {
    suffix: String,
}

impl Roles {
    /// With the rights that the guide lists.
    async fn granted(db: &Database) -> Self {
        let roles = Self { suffix: uuid::Uuid::new_v4().simple().to_string() };
        let sql = GUIDE.split("```sql").map(|block| block.split("```").next().unwrap());
        let grants = { sql }.find(|block| block.contains("GRANT")).expect("the guide lists them");
        for role in ["engine", "client", "reader"] {
            db.execute(&format!("CREATE ROLE {}", roles.name(role))).await;
        }
        db.execute(&grants.replace("shop_", &format!("shop_{}_", roles.suffix))).await;
        roles
    }

    fn name(&self, role: &str) -> String {
        format!("shop_{}_{role}", self.suffix)
    }

    fn pool(&self, db: &Database, role: &str) -> PgPool {
        let options = (*db.pool().connect_options()).clone().options([("role", self.name(role))]);
        PgPoolOptions::new().max_connections(8).connect_lazy_with(options)
    }

    async fn drop(self, db: &Database) {
        for role in ["engine", "client", "reader"] {
            let name = self.name(role);
            db.execute(&format!("DROP OWNED BY {name}; DROP ROLE {name}")).await;
        }
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.order", reply = u32)]
struct Order {
    fails: bool,
}

#[derive(Default)]
struct Orders;

#[saga]
#[subscribes(Order)]
impl Orders {
    #[step(rollback = undo)]
    async fn place(&self, scope: &mut Scope<'_>, order: &Order) -> Result<u32> {
        scope.launch(Item).await?;
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        scope.reply(order, 7)?;
        Ok(1)
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, order: &Order) -> Result<()> {
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }

    async fn undo(&self, _: &mut Scope<'_>, order: &Order, _: &Failure) -> Result<()> {
        if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.item")]
struct Item;

handler! {
    Items: "items" on Item;
    #[step(rollback = undo)]
    async fn take(&self, scope: &mut Scope<'_>, _: &Item) -> Result<()> {
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        Ok(())
    }

    rollback undo => done();
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.shipment")]
struct Shipment;

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "roles.paid")]
struct Paid {
    cents: u32,
}

handler! {
    Shipments: "shipments" on Shipment;

    #[step(awaits(Paid, by = number))]
    async fn send(&self, _: &mut Scope<'_>, _: &Shipment, paid: &Paid) -> Result<()> {
        assert!(paid.cents > 0);
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, _: &Shipment) -> Result<String> {
        Ok("7".into())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.forgotten")]
struct Forgotten;

handler! {
    Remembers: "remembers" on Forgotten;
    step "remember" remember => done();
}

#[derive(Default)]
struct Hourly;

#[saga(every = "1h")]
#[subscribes(Tick)]
impl Hourly {
    #[step]
    async fn run(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_role_does_all_that_programs_and_operators_do() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let pool = roles.pool(&db, "engine");
    let builder =
        || Scoop::builder().postgres(pool.clone()).only::<Orders>().only::<Items>().only::<Hourly>();
    let scoop = builder().start().await?;
    let order = |fails| Order { fails };

    let done = scoop.launch(order(false)).await?;
    assert_eq!(done.ends().await?, Outcome::Committed);
    assert_eq!(done.tree().await?.runs().len(), 2);
    assert_eq!(scoop.rollback(done.id(), "came back").await?, RollbackAnswer::Accepted);
    assert!(matches!(done.ends().await?, Outcome::RolledBack(_)));

    let failed = scoop.launch(order(true)).await?;
    assert!(matches!(failed.ends().await?, Outcome::RollbackFailed(_)));
    let run = scoop.operate().failures().list().await?[0].id();
    scoop.operate().failures().retry(run).await?;
    let failures = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLBACK_FAILED'";
    eventually("it has failed again", async || db.number(failures).await == 2).await;
    scoop.operate().failures().skip(run, "by hand").await?;
    assert!(matches!(failed.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(scoop.operate().failures().interventions(failed.id()).await?.len(), 2);

    let later = scoop.launch(order(false)).delay(Duration::from_secs(3600)).await?;
    assert_eq!(scoop.cancel(later.id(), "not wanted").await?, CancelAnswer::Accepted);
    assert!(matches!(later.ends().await?, Outcome::RolledBack(_)));

    let unhandled = scoop.launch(Forgotten).await?;
    assert_eq!(unhandled.ends().await?, Outcome::NoHandlers);
    assert_eq!(scoop.launch(order(false)).unique("1").await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;

    let scoop = Scoop::builder().postgres(pool.clone()).only::<Remembers>().start().await?;
    let redelivered = scoop
        .operate()
        .handlers()
        .redeliver(Forgotten::TOPIC)
        .since(SystemTime::now() - Duration::from_secs(60))
        .await?;
    assert_eq!(redelivered.hierarchies.len(), 1);
    assert_eq!(unhandled.ends().await?, Outcome::Committed);
    scoop.operate().handlers().retire("roles.item", "items").drop_pending().await?;
    scoop.shutdown().await?;
    pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.postcard", find_by(number))]
struct Postcard {
    number: u32,
}

#[derive(Default)]
struct Postcards;

#[saga(name = "roles-postcards", queue = 2)]
#[subscribes(Postcard)]
impl Postcards {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Postcard) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_engine_and_client_launch_to_a_limited_queue() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let (engine, client) = (roles.pool(&db, "engine"), roles.pool(&db, "client"));
    let scoop = Scoop::builder().postgres(engine.clone()).only::<Postcards>().start().await?;
    assert!(scoop.operate().pauses().pause(PauseTarget::Everything).await?.in_force);
    let client_scoop = Scoop::builder().postgres(client.clone()).client().await?;
    scoop.launch(Postcard { number: 1 }).await?;
    client_scoop.launch(Postcard { number: 2 }).wait_for_capacity(Duration::from_secs(60)).await?;
    for launcher in [&scoop, &client_scoop] {
        let refused = launcher.launch(Postcard { number: 3 }).await.map(drop);
        let Err(refused) = refused else { panic!("it was launched") };
        assert!(refused.is_queue_full(), "{refused:?}");
        assert!(refused.to_string().contains(": at most 2 of its runs"), "{refused}");
    }
    let found = db.texts("SELECT value::text FROM scoop.found_by ORDER BY 1").await;
    assert_eq!(found, ["1", "2"], "both roles record by what messages are found");
    scoop.shutdown().await?;
    engine.close().await;
    client.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_role_launches_and_looks_and_cannot_forge() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let scoop = db.start((Orders, Items)).await?;
    let pool = roles.pool(&db, "client");
    let client = Scoop::builder().postgres(pool.clone()).client().await?;

    let order = client.launch(Order { fails: false }).await?;
    assert_eq!(order.result::<Order>().await?, 7);
    assert_eq!(order.ends().await?, Outcome::Committed);
    assert_eq!(order.tree().await?.runs().len(), 2);
    let (mut tx, fails) = (pool.begin().await?, false);
    let within = client.launch(Order { fails }).in_transaction(&mut tx).await?;
    tx.commit().await?;
    assert_eq!(within.ends().await?, Outcome::Committed);
    let once = [
        client.launch(Order { fails }).unique("1").await?,
        client.launch(Order { fails }).unique("1").await?,
    ];
    assert_eq!(once[0].id(), once[1].id());
    assert_eq!(once[0].ends().await?, Outcome::Committed);
    for order in client.launch_all([Order { fails }, Order { fails }]).await? {
        assert_eq!(order.ends().await?, Outcome::Committed);
    }
    client.operate().failures().stuck().await?;

    let Err(error) = client.cancel(order.id(), "not mine").await.map(drop) else {
        panic!("it was cancelled")
    };
    assert!(error.is_denied(), "{error:?}");
    assert!(error.to_string().contains("permission denied for"), "{error}");
    let forgeries = [
        "INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
         SELECT message_id, 'ROLLING_BACK', coroutine_name, cooperation_lineage FROM scoop.message_event
         WHERE type = 'SEEN' LIMIT 1",
        "INSERT INTO scoop.message (topic, payload) VALUES ('roles.order', '{}')",
        "INSERT INTO scoop.return_value (cooperation_lineage, handler_name, variable_name, value)
         VALUES ('{}', 'orders', 'u32', '8')",
        "UPDATE scoop.message SET payload = '{}'",
        "UPDATE scoop.run SET state = 'ready'",
        "DELETE FROM scoop.message_event",
        "DELETE FROM scoop.handler",
        "SELECT scoop.settle('{}', '', NULL) FROM (SELECT) AS v",
        "SELECT FROM scoop.worker FOR UPDATE",
        "SELECT scoop.launch(jsonb_build_array(jsonb_build_object('id', gen_random_uuid(), 'topic', 'roles.order',
             'payload', '{}'::jsonb, 'root', cooperation_lineage[1])))
         FROM scoop.message_event WHERE type = 'EMITTED' LIMIT 1",
    ];
    let never = [
        "'due', '1960-01-01'",
        "'due', '-infinity'",
        "'due', 'infinity'",
        "'deadlines', jsonb_build_array('-infinity')",
    ];
    for time in never {
        let sql = AssertSqlSafe(format!(
            "SELECT scoop.launch(jsonb_build_array(jsonb_build_object('id', gen_random_uuid(), 'root', gen_random_uuid(),
                 'topic', 'roles.order', 'payload', '{{\"fails\": false}}'::jsonb, {time})))"
        ));
        let error = sqlx::raw_sql(sql).execute(&pool).await.expect_err("no engine can calculate with it");
        let code = error.as_database_error().and_then(|error| error.code().map(|code| code.to_string()));
        assert_eq!(code.as_deref(), Some("22008"), "{time}: {error}");
    }
    let one = "jsonb_build_object('id', gen_random_uuid(), 'topic', 'roles.order', 'root', root, ";
    let unreadable = [
        format!("{one} 'payload', '{{}}'::jsonb, 'context', 5)"),
        format!("{one} 'payload', '[1e400]'::jsonb)"),
        format!("{one} 'payload', (repeat('[', 101) || repeat(']', 101))::jsonb)"),
        format!("{one} 'payload', to_jsonb(repeat('x', 17000000)))"),
        format!("{one} 'payload', '{{}}'::jsonb), {one} 'payload', '{{}}'::jsonb)"),
    ];
    for messages in unreadable {
        let sql =
            format!("SELECT scoop.launch(jsonb_build_array({messages})) FROM gen_random_uuid() AS root");
        let error = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.expect_err(&messages);
        let code = error.as_database_error().and_then(|error| error.code().map(|code| code.to_string()));
        assert_eq!(code.as_deref(), Some("22023"), "{messages}: {error}");
    }
    let before = db.history().await.rows().len();
    for sql in forgeries {
        match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await {
            Err(error) => {
                let code =
                    error.as_database_error().and_then(|error| error.code().map(|code| code.to_string()));
                assert_eq!(code.as_deref(), Some("42501"), "{sql}: {error}");
            }
            Ok(_) => panic!("{sql}"),
        }
    }
    assert_eq!(db.history().await.rows().len(), before);
    let started = Scoop::builder().postgres(pool.clone()).only::<Orders>().start().await.map(drop);
    let Err(error) = started else { panic!("it started") };
    assert!(matches!(error.setup(), [SetupError::Denied { .. }]), "{error:?}");
    let shown = error.to_string();
    for part in ["permission denied", "INSERT on \"scoop\".message", "DELETE on \"scoop\".run"] {
        assert!(shown.contains(part), "{shown}");
    }
    scoop.shutdown().await?;
    pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "roles.delivery")]
struct Parcel {
    number: u32,
}

#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "roles.scanned")]
struct Scanned {
    gate: u32,
}

handler! {
    Carrier: "carrier" on Parcel;
    #[step(name = "hand over", awaits(Scanned, by = number))]
    async fn hand_over(&self, _: &mut Scope<'_>, _: &Parcel, _: &Scanned) -> Result<()> {
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, parcel: &Parcel) -> Result<String> {
        Ok(parcel.number.to_string())
    }
}

fn awaits(tree: &Tree) -> bool {
    tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal)
}

/// A program that polls rarely, so that all deliveries follow from notifications.
async fn start_carrier(db: &Database) -> Result<Scoop> {
    Ok(db.scoop().only::<Carrier>().poll_interval(Duration::from_secs(3_600)).start().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn client_role_sends_signals_that_a_program_delivers() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let scoop = start_carrier(&db).await?;
    let pool = roles.pool(&db, "client");
    let client = Scoop::builder().postgres(pool.clone()).client().await?;

    let parcels = [client.launch(Parcel { number: 1 }).await?, client.launch(Parcel { number: 1 }).await?];
    for parcel in &parcels {
        parcel.comes_to(awaits).await?;
    }
    let id = parcels[0].id().uuid();
    assert_eq!(client.signal(Scanned { gate: 1 }, "1").id(id).await?, 2);
    assert_eq!(client.signal(Scanned { gate: 2 }, "1").id(id).await?, 2, "it is the same signal");
    for parcel in parcels {
        assert_eq!(parcel.ends().await?, Outcome::Committed);
    }

    assert_eq!(client.signal(Scanned { gate: 1 }, "2").await?, 0, "it is early");
    assert_eq!(client.launch(Parcel { number: 2 }).await?.ends().await?, Outcome::Committed);

    let mut tx = pool.begin().await?;
    let id = uuid::Uuid::new_v4();
    assert!(client.signal(Scanned { gate: 1 }, "3").id(id).in_transaction(&mut tx).await?);
    assert!(!client.signal(Scanned { gate: 1 }, "3").id(id).in_transaction(&mut tx).await?);
    tx.commit().await?;
    assert_eq!(client.launch(Parcel { number: 3 }).await?.ends().await?, Outcome::Committed);
    let sent = "SELECT count(*) FROM scoop.signal WHERE delivered_at IS NOT NULL";
    assert_eq!(db.number(sent).await, 3);
    scoop.shutdown().await?;
    pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn client_role_cannot_forge_signals_and_the_reader_role_sends_none() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let scoop = start_carrier(&db).await?;
    let pool = roles.pool(&db, "client");
    let refused = async |sql: &str, code: &str| {
        let error = sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&pool).await.expect_err(sql);
        let refused = error.as_database_error().and_then(|error| error.code().map(|code| code.to_string()));
        assert_eq!(refused.as_deref(), Some(code), "{sql}: {error}");
    };
    let insert = "INSERT INTO scoop.signal (id, name, key, payload, kept_until)
        VALUES (gen_random_uuid(), 'roles.scanned', '1', '{}', now())";
    for sql in [insert, "UPDATE scoop.signal SET delivered_at = now()", "DELETE FROM scoop.signal"] {
        refused(sql, "42501").await;
    }
    let send = |key: &str, payload: &str, keep: &str| {
        format!("SELECT scoop.send_signal(gen_random_uuid(), 'roles.scanned', {key}, {payload}, {keep})")
    };
    for (key, payload, keep) in [
        ("''", "'{}'", "60"),
        ("repeat('x', 256)", "'{}'", "60"),
        ("NULL", "'{}'", "60"),
        ("'1'", "'[1e400]'", "60"),
        ("'1'", "to_jsonb(repeat('x', 17000000))", "60"),
        ("'1'", "'{}'", "-1"),
        ("'1'", "'{}'", "'infinity'"),
        ("'1'", "'{}'", "'nan'"),
        ("'1'", "'{}'", "NULL"),
    ] {
        refused(&send(key, payload, keep), "22023").await;
    }
    let reader_pool = roles.pool(&db, "reader");
    let reader = Scoop::builder().postgres(reader_pool.clone()).client().await?;
    let error = reader.signal(Scanned { gate: 1 }, "1").await.expect_err("it was sent");
    assert!(error.to_string().contains("permission denied for function send_signal"), "{error}");
    assert_eq!(db.number("SELECT count(*) FROM scoop.signal").await, 0);
    scoop.shutdown().await?;
    pool.close().await;
    reader_pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

/// Commands of a client role.
mod commands {
    use scoop::Decider;
    use scoop::entities::CommandState;

    use super::*;

    #[derive(Default, Serialize, Deserialize)]
    struct Stock {
        units: i64,
    }

    #[entity(name = "roles.stock", key = u32)]
    impl Stock {
        fn taken(&mut self, event: &Taken) {
            self.units -= event.units;
        }
    }

    #[derive(Message, Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[message(topic = "roles.taken")]
    struct Taken {
        units: i64,
    }

    #[derive(Serialize, Deserialize)]
    struct Take {
        units: i64,
    }

    #[command(entity = Stock, topic = "roles.take")]
    impl Take {
        fn key(&self) -> u32 {
            7
        }

        fn decide(&self, _: &Stock) -> Decision<Taken, ()> {
            let Self { units } = *self;
            if units > 5 { Decision::Rejected(()) } else { Decision::Accepted(Taken { units }) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_role_sends_commands_and_reads_decisions_and_entities() -> Result<()> {
        let db = Database::new().await;
        let roles = Roles::granted(&db).await;
        let scoop = db.scoop().only::<Decider<Take>>().start().await?;
        let pool = roles.pool(&db, "client");
        let client = Scoop::builder().postgres(pool.clone()).client().await?;
        let accepted = client.send(Take { units: 3 }).await?;
        assert_eq!(accepted.decision().await?, Decision::Accepted(Taken { units: 3 }));
        assert_eq!(client.find(accepted.id()).await?.command_state().await?, Some(CommandState::Accepted));
        let mut tx = pool.begin().await?;
        let rejected = client.send(Take { units: 6 }).in_transaction(&mut tx).await?;
        tx.commit().await?;
        assert_eq!(rejected.decision().await?, Decision::Rejected(()));
        assert_eq!(client.find(rejected.id()).await?.command_state().await?, Some(CommandState::Rejected));
        let stock = client.entity::<Stock>(7).await?;
        assert_eq!((stock.version, stock.state.units), (1, -3));
        scoop.shutdown().await?;
        pool.close().await;
        roles.drop(&db).await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_right_of_the_guide_is_reported_when_the_engine_role_lacks_it() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let (pool, name) = (roles.pool(&db, "engine"), roles.name("engine"));
    let granted = format!(
        "SELECT privilege_type || ' on ' || table_name FROM information_schema.role_table_grants
         -- `scoop.schema_version` reads the one with the rights of the owner; the other is for people
         WHERE grantee = '{name}' AND table_name NOT IN ('migration', 'runs') ORDER BY 1",
    );
    let granted = db.texts(&granted).await;
    assert!(granted.len() > 20, "{granted:?}");
    for right in granted {
        let (privilege, table) = right.split_once(" on ").expect("both were joined so");
        db.execute(&format!("REVOKE {privilege} ON scoop.{table} FROM {name}")).await;
        let refused = Scoop::builder().postgres(pool.clone()).only::<Orders>().start().await.map(drop);
        let refused = refused.expect_err(&right).to_string();
        assert!(refused.contains(&format!("{privilege} on \"scoop\".{table}")), "without {right}: {refused}");
        db.execute(&format!("GRANT {privilege} ON scoop.{table} TO {name}")).await;
    }
    pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_role_looks_and_does_not_launch() -> Result<()> {
    let db = Database::new().await;
    let roles = Roles::granted(&db).await;
    let scoop = db.start((Orders, Items, Shipments)).await?;
    let order = scoop.launch(Order { fails: false }).await?;
    let pool = roles.pool(&db, "reader");
    let reader = Scoop::builder().postgres(pool.clone()).client().await?;
    let seen = reader.find(order.id()).await?;
    assert_eq!(seen.ends().await?, Outcome::Committed);
    assert_eq!(seen.tree().await?.runs().len(), 2);
    let runs = "SELECT count(*) FROM scoop.runs";
    assert_eq!(sqlx::query_scalar::<_, i64>(runs).fetch_one(&pool).await?, 0);
    assert!(reader.operate().handlers().list().await?.iter().any(|listed| listed.handler == "orders"));
    assert!(
        reader.operate().failures().stuck().await?.is_empty()
            && reader.operate().failures().list().await?.is_empty()
    );
    assert!(
        !reader.operate().runs().list().await?.runs.is_empty()
            && !reader.operate().runs().list().handler("orders").await?.runs.is_empty()
    );
    assert_eq!(reader.operate().runs().explain(order.id()).await?.runs.len(), 1);
    assert!(!reader.operate().runs().count().await?.finished.is_empty());
    let tried = reader.rollback(order.id(), "tried").dry_run();
    assert_eq!(tried.await?, RollbackAnswer::Accepted, "a dry run needs no right to write");
    assert_eq!(reader.cancel(order.id(), "tried").dry_run().await?, CancelAnswer::NothingToDo);
    assert!(seen.tree().await?.cancellations().is_empty());
    let broken = scoop.launch(Order { fails: true }).await?;
    assert!(matches!(broken.ends().await?, Outcome::RollbackFailed(_)));
    let run = reader.operate().failures().list().await?.remove(0).id();
    assert_eq!(reader.operate().runs().explain(run).await?.runs[0].requests().count(), 4);
    for tried in [
        reader.operate().failures().retry(run),
        reader.operate().failures().skip(run, "tried"),
        reader.operate().failures().resolve(run, "tried"),
    ] {
        assert_eq!(tried.dry_run().await?, RepairAnswer::Accepted);
    }
    let shipment = scoop.launch(Shipment).await?;
    let awaits = |tree: &Tree| tree.roots().iter().any(|run| run.state == RunState::AwaitingSignal);
    let run = shipment.comes_to(awaits).await?.roots()[0].id();
    let tried =
        reader.operate().runs().signal_run(run, serde_json::json!({ "cents": 990 }), "tried").dry_run();
    assert_eq!(tried.await?, SignalAnswer::Accepted);
    for hierarchy in [&broken, &shipment] {
        assert!(reader.operate().failures().interventions(hierarchy.id()).await?.is_empty());
    }
    let mut events = begun(reader.operate().events().follow()).await;
    scoop.launch(Order { fails: false }).await?.ends().await?;
    assert!(events.next().await.is_some_and(|event| event.is_ok()));
    let Err(error) = reader.launch(Order { fails: false }).await.map(drop) else { panic!("it was launched") };
    assert!(error.to_string().contains("permission denied for function launch"), "{error}");
    scoop.shutdown().await?;
    pool.close().await;
    roles.drop(&db).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_made_by_another_tool_are_used() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE SCHEMA elsewhere").await;
    let files = scoop::migration::migration_files("elsewhere")?;
    for (at, (name, sql)) in files.iter().enumerate() {
        let client = db.scoop().schema("elsewhere").client().await;
        assert!(client.is_err_and(|error| !error.setup().is_empty()), "before {name}");
        assert!(name.starts_with(&format!("{:04}_", at + 1)), "{name}");
        db.execute(&format!("BEGIN; {sql}; COMMIT")).await;
    }
    let scoop = db.scoop().schema("elsewhere").only::<Orders>().only::<Items>().start().await?;
    assert_eq!(scoop.launch(Order { fails: false }).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    scoop::migration::migrate(db.pool()).schema("elsewhere").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_is_a_step_of_its_own() -> Result<()> {
    let db = Database::new().await;
    let migrate = || scoop::migration::migrate(db.pool()).schema("deployed").into_future();
    let (one, other) = tokio::join!(migrate(), migrate());
    one.and(other)?;
    let scoop = db.scoop().schema("deployed").migrate(false).only::<Items>().start().await?;
    assert_eq!(scoop.launch(Item).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
