//! Deletion of finished hierarchies, by the rows of the tables.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use scoop::pauses::PauseTarget;
use scoop::retention::Retention;
use sqlx::PgPool;

use super::*;
use crate::support::{Database, Gate, eventually};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The tables of the record of hierarchies.
const RECORD: [&str; 8] = [
    "message",
    "message_event",
    "return_value",
    "intervention",
    "begun_step",
    "execution",
    "redelivery",
    "join_member",
];

#[derive(Message, Clone, Serialize, Deserialize)]
#[message(topic = "retention-rows.feed", reply = u32)]
struct Feed {
    cursor: u32,
    fails: bool,
}

#[derive(Clone, Default)]
struct Feeds {
    gate: Gate,
    is_mended: Arc<AtomicBool>,
}

#[saga(name = "retention-rows-feeds")]
#[subscribes(Feed)]
impl Feeds {
    #[step(delivery = "at_most_once", rollback = unfetch)]
    async fn fetch(&self, _: &mut Scope<'_>, feed: &Feed) -> Result<u32> {
        Ok(feed.cursor)
    }

    #[step]
    async fn gather(&self, scope: &mut Scope<'_>, _: &Feed) -> Result<()> {
        scope.launch(Item).await?;
        Ok(())
    }

    #[step]
    async fn turn(
        &self,
        scope: &mut Scope<'_>,
        feed: &Feed,
        _: &u32,
    ) -> Result<ContinueAsNew<FeedsStep, Feed>> {
        match feed.cursor {
            0 if feed.fails => Err(SIMULATED.into()),
            0 => {
                scope.reply(feed, 1)?;
                self.gate.pass().await;
                Ok(Next::Continue.into())
            }
            cursor => Ok(Next::continue_as_new(Feed { cursor: cursor - 1, ..feed.clone() })),
        }
    }

    async fn unfetch(&self, _: &mut Scope<'_>, _: &Feed, _: &u32, _: &Failure) -> Result<()> {
        if self.is_mended.load(Ordering::Relaxed) { Ok(()) } else { Err(SIMULATED.into()) }
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention-rows.item")]
struct Item;

handler! {
    Items: "retention-rows-items" on Item;
    step "keep" keep => done().silently();
}

async fn start(db: &Database, feeds: &Feeds) -> Result<Scoop> {
    Ok(db.scoop().only::<Feeds>().provide(feeds.clone()).only::<Items>().start().await?)
}

/// A saga that passes its gate, and that can be rolled back.
fn open() -> Feeds {
    let feeds = Feeds::default();
    feeds.gate.open(1_000);
    feeds.is_mended.store(true, Ordering::Relaxed);
    feeds
}

async fn rows(db: &Database, table: &str) -> i64 {
    db.number(&format!("SELECT count(*) FROM scoop.{table}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_pruned_hierarchy_remains() -> Result<()> {
    let (db, feeds) = (Database::new().await, Feeds::default());
    let scoop = start(&db, &feeds).await?;
    let feed = scoop.launch(Feed { cursor: 2, fails: true }).await?;
    assert!(matches!(feed.ends().await?, Outcome::RollbackFailed(_)));
    let [failed] = &scoop.operate().failures().list().await?[..] else { panic!("there is one") };
    scoop.operate().failures().retry(failed.lineage.id()).await?;
    let failures = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLBACK_FAILED'";
    eventually("it failed again", async || db.number(failures).await == 2).await;
    feeds.is_mended.store(true, Ordering::Relaxed);
    scoop.operate().failures().retry(failed.lineage.id()).await?;
    eventually("it is rolled back", async || db.unfinished().await == 0).await;
    scoop.shutdown().await?;
    for table in RECORD {
        let is_expected = !["redelivery", "join_member"].contains(&table);
        assert_eq!(rows(&db, table).await > 0, is_expected, "{table}");
    }
    db.grow_older(60 * DAY).await;
    let pruned = db.client().operate().retention().prune().await?;
    assert_eq!((pruned.hierarchies, pruned.retained), (1, Default::default()));
    for table in RECORD {
        assert_eq!(rows(&db, table).await, 0, "{table}");
    }
    Ok(())
}

/// The intervention names a run that has no event.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_operators_are_archived_if_and_only_if_they_are_deleted() -> Result<()> {
    let (db, lines) = (Database::new().await, Arc::new(Mutex::new(Vec::<u8>::new())));
    let to = lines.clone();
    let builder = db.scoop().retention(Retention::forever()).only::<Items>().archive_with(move |batch| {
        let to = to.clone();
        async move {
            let mut text: Vec<u8> = vec![];
            batch.write_ndjson(&mut text).await.map_err(|error| error.to_string())?;
            to.lock().unwrap().extend(text);
            Ok::<_, String>(())
        }
    });
    let scoop = builder.start().await?;
    assert_eq!(scoop.launch(Item).await?.ends().await?, Outcome::Committed);
    db.execute(
        "INSERT INTO scoop.intervention (root, run, handler, message_id, kind, source, requested_at)
         SELECT cooperation_lineage[1], gen_random_uuid(), coroutine_name, message_id, 'retry', 'a test', created_at
         FROM scoop.message_event WHERE type = 'SEEN'",
    )
    .await;
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    let text = String::from_utf8(lines.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("\"table\": \"intervention\"").count(), 1, "{text}");
    assert_eq!(rows(&db, "intervention").await, 0);
    scoop.shutdown().await?;
    Ok(())
}

/// The keys of the locks that a request to roll back, a redelivery and a cancellation take.
#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_another_transaction_has_locked_is_kept() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    let feed = scoop.launch(Feed { cursor: 1, fails: false }).await?;
    assert_eq!(feed.ends().await?, Outcome::Committed);
    db.grow_older(60 * DAY).await;
    for lock in [
        format!("SELECT pg_advisory_xact_lock(hashtextextended('{}', 0))", feed.id()),
        format!("SELECT id FROM scoop.message WHERE id = '{}' FOR KEY SHARE", feed.message_id()),
        "SELECT id FROM scoop.message WHERE topic = 'retention-rows.item' FOR KEY SHARE".to_owned(),
    ] {
        let mut tx = db.pool().begin().await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(lock.clone())).execute(&mut *tx).await?;
        let pruned = scoop.operate().retention().prune().await?;
        assert_eq!((pruned.hierarchies, pruned.retained.busy), (0, 1), "{lock}");
        tx.rollback().await?;
    }
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    Ok(())
}

/// Of a rollback and a deletion at the same time one wins.
#[tokio::test(flavor = "multi_thread")]
async fn rollback_and_deletion_at_once_leave_a_whole_hierarchy_or_none() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    for _ in 0..20 {
        let feed = scoop.launch(Feed { cursor: 1, fails: false }).await?;
        assert_eq!(feed.ends().await?, Outcome::Committed);
        db.grow_older(60 * DAY).await;
        let (asked, pruned) = tokio::join!(
            scoop.rollback(feed.id(), "at once").into_future(),
            scoop.operate().retention().prune().into_future()
        );
        match pruned?.hierarchies {
            0 => {
                assert_eq!(asked?, RollbackAnswer::Accepted);
                assert!(matches!(feed.ends().await?, Outcome::RolledBack(_)));
            }
            _ => match asked {
                Ok(answer) => assert_eq!(answer, RollbackAnswer::NoHandlers),
                Err(error) => {
                    let text = error.to_string();
                    assert!(error.is_not_found(), "{text}");
                    assert!(text.starts_with("there is no hierarchy and no run "), "{text}");
                }
            },
        }
        eventually("all is at rest", async || db.unfinished().await == 0).await;
        db.history().await;
        db.grow_older(60 * DAY).await;
        scoop.operate().retention().prune().await?;
        assert_eq!(rows(&db, "message_event").await, 0);
    }
    Ok(())
}

/// Its checks have to see what was committed before it got the locks.
#[tokio::test(flavor = "multi_thread")]
async fn function_is_refused_in_a_transaction_with_an_old_snapshot() -> Result<()> {
    let db = Database::new().await;
    let mut tx = db.pool().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await?;
    let prune = "SELECT scoop.prune(gen_random_uuid(), 1e7, 1e7, false, false)";
    let refused = sqlx::query(prune).execute(&mut *tx).await.unwrap_err();
    assert!(refused.to_string().contains("at READ COMMITTED only"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_messages_outlive_their_hierarchies_in_the_table() -> Result<()> {
    let db = Database::new().await;
    db.execute(
        "INSERT INTO scoop.handler (topic, handler) VALUES ('pay', 'till');
         INSERT INTO scoop.message (id, topic, payload)
         SELECT md5(n::text)::uuid, CASE n WHEN 1 THEN 'pay' ELSE 'paid' END, '{\"cents\": 7}' FROM generate_series(1, 2) n;
         INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
         SELECT md5(n::text)::uuid, type::scoop.message_event_type, handler, (ARRAY[md5('root')::uuid, md5('run')::uuid])[:depth]
         FROM (VALUES (1, 'EMITTED', NULL, 1), (1, 'SEEN', 'till', 2), (2, 'EMITTED', 'till', 2),
                      (1, 'COMMITTED', 'till', 2)) events (n, type, handler, depth);
         INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
         SELECT md5('root')::uuid, md5('run')::uuid, ARRAY[md5('root')::uuid, md5('run')::uuid], md5('1')::uuid, 'pay', 'till',
                'committed', now();
         INSERT INTO scoop.entity_event (name, key, version, message_id, run)
         VALUES ('till', '7', 1, md5('2')::uuid, md5('run')::uuid)",
    )
    .await;
    db.grow_older(60 * DAY).await;
    assert_eq!(db.client().operate().retention().prune().await?.hierarchies, 1);
    assert_eq!(db.texts("SELECT topic FROM scoop.message").await, ["paid"]);
    assert_eq!(rows(&db, "message_event").await, 0);
    Ok(())
}

/// A redelivery locks the row of the message, and so does a deletion.
#[tokio::test(flavor = "multi_thread")]
async fn redelivered_message_is_kept_while_its_new_run_is_unfinished() -> Result<()> {
    let (db, feeds) = (Database::new().await, Feeds::default());
    let unhandled = db.client().launch(Feed { cursor: 0, fails: false }).await?;
    let scoop = start(&db, &feeds).await?;
    assert_eq!(scoop.operate().handlers().redeliver(Feed::TOPIC).await?.hierarchies, [unhandled.id()]);
    feeds.gate.arrivals(1).await;
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.retained.unfinished, 1);
    feeds.gate.open(10);
    assert_eq!(unhandled.ends().await?, Outcome::Committed);
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
    assert_eq!(rows(&db, "redelivery").await, 0);
    Ok(())
}

/// What has become due, by a look of this worker; none if another one deletes.
async fn taken_by(db: &Database, worker: u8) -> Option<Vec<uuid::Uuid>> {
    let take = "SELECT roots FROM scoop.retention_next(md5($1::text)::uuid, 604800, 604800, 2, true)";
    sqlx::query_scalar(take).bind(i32::from(worker)).fetch_one(db.pool()).await.unwrap()
}

async fn settle(db: &Database, worker: u8, last: bool) -> i64 {
    db.number(&format!(
        "SELECT count(*) FILTER (WHERE s.verdict = 'deleted')
         FROM scoop.retention_next(md5('{worker}')::uuid, 604800, 604800, 2, true) n
         CROSS JOIN LATERAL scoop.retention_settle(
             md5('{worker}')::uuid, 604800, 604800, n.roots, n.roots, {last}, 60) s"
    ))
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_at_a_time_deletes_and_another_continues_after_its_death() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    for _ in 0..5 {
        assert_eq!(scoop.launch(Feed { cursor: 0, fails: false }).await?.ends().await?, Outcome::Committed);
    }
    scoop.shutdown().await?;
    assert_eq!(taken_by(&db, 1).await, Some(vec![]), "nothing is due");
    db.execute("UPDATE scoop.keep_time SET committed = 604800, rolled_back = 604800").await;
    db.grow_older(8 * DAY).await;
    assert_eq!(taken_by(&db, 1).await.map(|roots| roots.len()), Some(2));
    assert_eq!(taken_by(&db, 2).await, None, "the other one deletes");
    assert_eq!(settle(&db, 1, false).await, 2);
    assert_eq!(taken_by(&db, 2).await, None);

    db.execute("UPDATE scoop.retention SET taken_until = taken_until - interval '5 minutes'").await;
    assert_eq!(settle(&db, 2, false).await, 2);
    assert_eq!(taken_by(&db, 1).await, None);
    assert_eq!(settle(&db, 2, true).await, 1);
    assert_eq!(taken_by(&db, 1).await, Some(vec![]));
    for table in RECORD.iter().chain(&["kept_hierarchy"]) {
        assert_eq!(rows(&db, table).await, 0, "{table}");
    }
    Ok(())
}

/// One hierarchy that is due, of which worker 1 has taken the place for a time that is over.
async fn due_and_taken(db: &Database) -> Result<uuid::Uuid> {
    let scoop = start(db, &open()).await?;
    let feed = scoop.launch(Feed { cursor: 0, fails: false }).await?;
    assert_eq!(feed.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    db.execute("UPDATE scoop.keep_time SET committed = 604800, rolled_back = 604800").await;
    db.grow_older(8 * DAY).await;
    assert_eq!(taken_by(db, 1).await, Some(vec![feed.id().uuid()]));
    db.execute("UPDATE scoop.retention SET taken_until = taken_until - interval '5 minutes'").await;
    Ok(feed.id().uuid())
}

/// Settles a hierarchy as the last one, for worker 1.
fn settle_one(
    root: uuid::Uuid,
) -> sqlx::query::QueryScalar<'static, sqlx::Postgres, String, sqlx::postgres::PgArguments> {
    let settle =
        "SELECT s.verdict FROM scoop.retention_settle(md5('1')::uuid, 604800, 604800, ARRAY[$1], ARRAY[$1],
        true, 60) s";
    sqlx::query_scalar(settle).bind(root)
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_that_outlives_its_time_keeps_other_workers_out_until_its_commit() -> Result<()> {
    let db = Database::new().await;
    let root = due_and_taken(&db).await?;
    let mut tx = db.pool().begin().await?;
    assert_eq!(settle_one(root).fetch_all(&mut *tx).await?, ["deleted"]);
    assert_eq!(taken_by(&db, 2).await, None, "at once, without waiting for the lock");
    tx.commit().await?;
    assert_eq!(taken_by(&db, 2).await, Some(vec![]));
    assert_eq!(rows(&db, "message_event").await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_lost_the_place_deletes_nothing() -> Result<()> {
    let db = Database::new().await;
    let root = due_and_taken(&db).await?;
    assert_eq!(taken_by(&db, 2).await, Some(vec![root]));
    assert!(settle_one(root).fetch_all(db.pool()).await?.is_empty());
    assert!(rows(&db, "message_event").await > 0);
    assert_eq!(taken_by(&db, 1).await, None, "the other one still has it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn place_that_a_worker_took_before_the_clock_was_set_back_is_taken_over() -> Result<()> {
    let db = Database::new().await;
    let root = due_and_taken(&db).await?;
    for (worker, until) in [(2, "clock_timestamp() + interval '1 year'"), (3, "'infinity'")] {
        db.execute(&format!("UPDATE scoop.retention SET taken_until = {until}")).await;
        assert_eq!(taken_by(&db, worker).await, Some(vec![root]), "{until}");
    }
    assert_eq!(taken_by(&db, 1).await, None, "the last one has it");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_is_that_of_the_oldest_due_hierarchy_put_off_or_not() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    let days_behind = async || {
        let behind = "SELECT round(n.behind / 86400)::bigint
             FROM scoop.retention_next(md5('1')::uuid, 604800, 604800, 9, true) n";
        db.number(behind).await
    };
    assert_eq!(scoop.launch(Feed { cursor: 0, fails: false }).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    db.execute("UPDATE scoop.keep_time SET committed = 604800, rolled_back = 604800").await;
    assert_eq!(days_behind().await, 0);
    db.grow_older(8 * DAY).await;
    assert_eq!(days_behind().await, 1);
    db.execute(
        "INSERT INTO scoop.kept_hierarchy (root, until) VALUES (gen_random_uuid(), now() - interval '3 days')",
    )
    .await;
    assert_eq!(days_behind().await, 3);
    Ok(())
}

/// Topics with many due hierarchies hold up no other one.
#[tokio::test(flavor = "multi_thread")]
async fn longest_due_hierarchies_are_taken_first_and_each_once() {
    let db = Database::new().await;
    db.execute(
        "INSERT INTO scoop.ended_run (root, id, lineage, message_id, topic, handler, outcome, ended_at)
         SELECT md5(root)::uuid, run.id, ARRAY[md5(root)::uuid, run.id], md5(root)::uuid, topic, handler, 'committed',
                now() - days * interval '1 day'
         FROM (VALUES ('1', 'a', 8), ('2', 'a', 8), ('3', 'b', 9)) ended (root, topic, days),
              (VALUES ('one'), ('two')) handlers (handler)
         CROSS JOIN LATERAL (SELECT md5(root || handler)::uuid AS id) run",
    )
    .await;
    let taken = taken_by(&db, 1).await.expect("no other one deletes");
    let longest = db.texts("SELECT md5('3')::uuid::text").await;
    assert_eq!(taken.len(), 2);
    assert_eq!(taken[0].to_string(), longest[0]);
    assert_ne!(taken[1], taken[0]);
}

/// Each look would find it again.
#[tokio::test(flavor = "multi_thread")]
async fn hierarchy_that_is_kept_is_looked_at_again_after_an_eighth_of_its_age() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    let feed = scoop.launch(Feed { cursor: 0, fails: false }).await?;
    assert_eq!(feed.ends().await?, Outcome::Committed);
    db.execute("UPDATE scoop.keep_time SET committed = 604800, rolled_back = 604800").await;
    db.grow_older(8 * DAY).await;
    let sweep = "SELECT s.verdict FROM scoop.retention_next(md5('1')::uuid, 604800, 604800, 9, true) n
        CROSS JOIN LATERAL scoop.retention_settle(
            md5('1')::uuid, 604800, 604800, n.roots, n.roots, true, 60) s";
    let look = async || db.texts(sweep).await;
    // as if a run of it had begun after the look
    let child = "INSERT INTO scoop.run (root, id, parent, lineage, message_id, topic, handler, last_event_at)
         SELECT root, md5('child')::uuid, id, lineage || md5('child')::uuid, message_id, topic, 'absent', now()
         FROM scoop.ended_run WHERE cardinality(lineage) = 2";
    db.execute(child).await;
    assert_eq!(look().await, ["unfinished"]);
    let eighth = "SELECT count(*) FROM scoop.kept_hierarchy
         WHERE until > now() + interval '23 hours' AND until < now() + interval '25 hours'";
    assert_eq!(db.number(eighth).await, 1);
    db.execute("DELETE FROM scoop.run").await;
    assert!(look().await.is_empty(), "not before that time");
    // An eighth of the age is more than a day by what the test has taken.
    db.grow_older(2 * DAY).await;
    assert_eq!(look().await, ["deleted"]);
    assert_eq!(rows(&db, "kept_hierarchy").await, 0);
    scoop.shutdown().await?;
    Ok(())
}

/// No end of a run tells of it.
#[tokio::test(flavor = "multi_thread")]
async fn message_without_a_handler_is_deleted_after_the_time_of_the_program() -> Result<()> {
    let db = Database::new().await;
    let unhandled = db.client().launch(Feed { cursor: 0, fails: false }).await?;
    let feeds = open();
    let scoop = start(&db, &feeds).await?;
    assert_eq!(scoop.launch(Feed { cursor: 0, fails: false }).await?.ends().await?, Outcome::Committed);
    db.execute("DELETE FROM scoop.keep_time").await;
    assert_eq!(rows(&db, "kept_hierarchy").await, 1, "only the one without a handler");
    for (days, deleted) in [(2, 0), (4, 0), (2, 2)] {
        db.grow_older(days * DAY).await;
        assert_eq!(settle(&db, 1, true).await, deleted, "{days} days later");
    }
    assert!(scoop.find(unhandled.id()).await.is_err());
    assert_eq!((rows(&db, "message").await, rows(&db, "kept_hierarchy").await), (0, 0));
    scoop.shutdown().await?;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "rows.ping")]
struct Ping;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "rows.nobody")]
struct Nobody;

#[derive(Default)]
struct Pings;

#[saga(name = "pings")]
#[subscribes(Ping)]
impl Pings {
    #[step]
    async fn detach(&self, scope: &mut Scope<'_>, _: &Ping) -> Result<()> {
        scope.detach(Nobody).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn detached_message_without_a_handler_is_deleted_too() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Pings>().provide(Pings).start().await?;
    assert_eq!(scoop.launch(Ping).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    assert_eq!(rows(&db, "kept_hierarchy").await, 1);
    db.execute("DELETE FROM scoop.keep_time").await;
    db.grow_older(8 * DAY).await;
    assert_eq!(settle(&db, 1, true).await, 2);
    assert_eq!((rows(&db, "message").await, rows(&db, "kept_hierarchy").await), (0, 0));
    Ok(())
}

/// The right to delete finished hierarchies is that of a function.
#[tokio::test(flavor = "multi_thread")]
async fn role_without_the_function_cannot_prune() -> Result<()> {
    let db = Database::new().await;
    let role = format!("keeper_{}", uuid::Uuid::new_v4().simple());
    db.execute(&format!("CREATE ROLE {role}; GRANT USAGE ON SCHEMA scoop TO {role}")).await;
    db.execute(&format!("GRANT SELECT ON ALL TABLES IN SCHEMA scoop TO {role}")).await;
    let options = (*db.pool().connect_options()).clone().options([("role", &role)]);
    let client = Scoop::client(PgPool::connect_lazy_with(options));
    let refused = client.operate().retention().prune().await.unwrap_err();
    assert!(refused.is_denied(), "{refused}");
    db.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "retention-rows.letter")]
struct Letter {
    text: String,
}

handler! {
    Letters: "retention-rows-letters" on Letter;
    step "post" post => done().silently();
}

#[tokio::test(flavor = "multi_thread")]
async fn unique_key_that_is_kept_is_a_message_without_its_payload() -> Result<()> {
    let db = Database::new().await;
    let keep = Retention::default().unique_keys(90 * DAY);
    let scoop = db.scoop().retention(keep).only::<Letters>().start().await?;
    for key in [Some("7"), None] {
        let letter = scoop.launch(Letter { text: "hunter2".into() });
        let letter = if let Some(key) = key { letter.unique(key).await? } else { letter.await? };
        assert_eq!(letter.ends().await?, Outcome::Committed);
    }
    db.grow_older(60 * DAY).await;
    let pruned = scoop.operate().retention().prune().await?;
    assert_eq!((pruned.hierarchies, pruned.messages, pruned.unique_keys), (2, 1, 0));
    assert_eq!(db.texts("SELECT payload::text FROM scoop.message").await, ["null"]);
    db.grow_older(60 * DAY).await;
    assert_eq!(scoop.operate().retention().prune().await?.unique_keys, 1);
    assert_eq!(db.number("SELECT count(*) FROM scoop.message").await, 0);
    assert_eq!(db.number("SELECT count(*) FROM scoop.kept_key").await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_ended_pauses_the_newest_thousand_are_kept() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.client();
    db.execute(
        "INSERT INTO scoop.ended_pause (kind, name, source, since, ended_at)
         SELECT 'topic', 'former', 'ann', now(), now() - n * interval '1 hour' FROM generate_series(1, 1000) n",
    )
    .await;
    assert_eq!(scoop.operate().pauses().ended().limit(2_000).await?.len(), 1_000);
    for topic in ["one", "two"] {
        scoop.operate().pauses().pause(PauseTarget::topic(topic)).await?;
        scoop.operate().pauses().resume(PauseTarget::topic(topic)).await?;
    }
    let ended = scoop.operate().pauses().ended().limit(2_000).await?;
    assert_eq!(ended.len(), 1_000);
    assert_eq!(ended[0].pause.target, PauseTarget::topic("two"));
    assert_eq!(ended[2].pause.target, PauseTarget::topic("former"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn infinite_times_of_hierarchies_stop_no_deletion() -> Result<()> {
    let (db, feeds) = (Database::new().await, open());
    let scoop = start(&db, &feeds).await?;
    db.execute("UPDATE scoop.keep_time SET committed = 604800, rolled_back = 604800").await;
    for is_by_hand in [true, false] {
        let mut roots = vec![];
        for _ in 0..4 {
            let feed = scoop.launch(Feed { cursor: 0, fails: false }).await?;
            assert_eq!(feed.ends().await?, Outcome::Committed);
            roots.push(feed.id());
        }
        db.grow_older(60 * DAY).await;
        let begun = "type = 'EMITTED' AND cardinality(cooperation_lineage) = 1";
        for (time, root, which) in
            [("-infinity", roots[0], "true"), ("-infinity", roots[1], begun), ("infinity", roots[2], begun)]
        {
            let damage = format!(
                "UPDATE scoop.message_event SET created_at = '{time}'
                 WHERE cooperation_lineage[1] = '{root}' AND {which};
                 UPDATE scoop.ended_run SET ended_at = '{time}' WHERE root = '{root}'"
            );
            db.execute(&damage).await;
        }
        if is_by_hand {
            let expected = scoop.operate().retention().prune().dry_run().await?;
            assert_eq!((expected.hierarchies, expected.retained.recent), (3, 0), "{expected:?}");
            assert_eq!(scoop.operate().retention().prune().await?, expected);
        } else {
            let mut deleted = 0;
            for _ in 0..4 {
                deleted += settle(&db, 1, true).await;
            }
            assert_eq!(deleted, 3);
        }
        // A time that is remembered stays infinite.
        let left = db.texts("SELECT DISTINCT cooperation_lineage[1]::text FROM scoop.message_event").await;
        assert_eq!(left, [roots[2].to_string()], "the year 9999 is not over");
        if is_by_hand {
            db.execute("UPDATE scoop.ended_run SET ended_at = now() - interval '60 days'").await;
            assert_eq!(scoop.operate().retention().prune().await?.hierarchies, 1);
        }
    }
    Ok(())
}
