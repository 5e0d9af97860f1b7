//! Slow statements, and statements that can never succeed: they affect only the step that runs
//! them.

use std::time::{Duration, Instant};

use sqlx::postgres::PgPoolOptions;

use super::*;
use crate::support::{Database, eventually};

handler! {
    /// Runs beside the slow saga.
    Bystander: "bystander" on Grandchild;
    step "stand" stand => done();
}

mod timeouts {
    use super::*;

    handler! {
        Blocked: "blocked" on Root;
        step "sleep" sleep [timeout = "50ms"] => executes("SELECT pg_sleep(15)");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn steps_that_time_out_in_a_statement_leave_the_engine_its_connections() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Blocked, Bystander)).await?;
        let begin = Instant::now();
        // As many as there are connections for steps.
        for root in scoop.launch_all([Root, Root]).await? {
            let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it did not fail") };
            assert_eq!(failure.kind, "StepTimeout");
        }
        // One more, which finds none free.
        scoop.launch(Root).await?;
        assert_eq!(scoop.launch(Grandchild).await?.ends().await?, Outcome::Committed);
        assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
        Ok(())
    }
}

mod hopeless {
    use super::*;

    #[derive(Default)]
    struct Limited;

    #[saga]
    #[subscribes(Root)]
    impl Limited {
        #[step]
        async fn sleep(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let tx = scope.tx().await?;
            sqlx::query("SET LOCAL statement_timeout = '50ms'").execute(&mut *tx).await?;
            sqlx::query("SELECT pg_sleep(5)").execute(&mut *tx).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_statement_that_always_times_out_fails_the_step() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Limited,)).await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.contains("statement timeout"), "{failure}");
        Ok(())
    }

    /// More than the protocol of PostgreSQL can number.
    const PARAMETERS: i32 = 70_000;

    #[derive(Default)]
    struct Excessive;

    #[saga]
    #[subscribes(Child)]
    impl Excessive {
        #[step]
        async fn ask(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            let mut query = sqlx::QueryBuilder::new("SELECT 1 WHERE 1 IN (");
            let mut list = query.separated(", ");
            for number in 0..PARAMETERS {
                list.push_bind(number);
            }
            query.push(")");
            query.build().execute(scope.tx().await?).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn too_many_parameters_fail_the_step() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Excessive,)).await?;
        let outcome = scoop.launch(Child).await?.ends().await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        Ok(())
    }
}

mod outcomes {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    struct Part(u32);

    #[derive(Default)]
    struct Whole;

    #[saga]
    #[subscribes(Root)]
    impl Whole {
        #[step]
        async fn divide(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            for number in 0..20 {
                scope.launch(Part(number)).await?;
            }
            Ok(())
        }
    }

    handler! {
        Parts: "parts" on Part;
        step "nothing" nothing => done();
    }

    /// Makes every launch of a part slow, so that those of a step together take 400 ms.
    const SLOW_PARTS: &str = "
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
        CREATE TRIGGER slow BEFORE INSERT ON scoop.run
            FOR EACH ROW WHEN (NEW.parent IS NOT NULL) EXECUTE FUNCTION slow();";

    #[tokio::test(flavor = "multi_thread")]
    async fn outcomes_slower_than_the_statement_timeout_are_written_and_block_no_other() -> Result<()> {
        let db = Database::new().await;
        db.execute(SLOW_PARTS).await;
        let options = (*db.pool().connect_options()).clone().options([("statement_timeout", "100ms")]);
        let pool = PgPoolOptions::new().max_connections(scoop::Builder::required_connections());
        let pool = pool.connect_with(options).await?;
        let scoop = Scoop::builder().postgres(pool).only::<Whole>().only::<Parts>().only::<Bystander>();
        let scoop = scoop.start().await?;
        let slow = scoop.launch_all([Root, Root]).await?;
        assert_eq!(scoop.launch(Grandchild).await?.ends().await?, Outcome::Committed);
        for root in slow {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_read_of_a_tree_ends_its_statement() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().client().await?;
    let launched = scoop.launch(Root).await?;
    let lock = db.pool().begin_with("BEGIN; LOCK TABLE scoop.message_event IN ACCESS EXCLUSIVE MODE").await?;
    let read = tokio::spawn(async move { launched.tree().await.map(drop) });
    let statements = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '-- Which runs does a hierarchy have%'";
    eventually("the tree is read", async || db.number(statements).await == 1).await;
    read.abort();
    eventually("its statement has ended", async || db.number(statements).await == 0).await;
    lock.rollback().await?;
    scoop.shutdown().await.map_err(Into::into)
}

mod reads {
    use super::*;

    /// The table of a list that no saga needs.
    const LOCK: &str = "BEGIN; LOCK TABLE scoop.intervention IN ACCESS EXCLUSIVE MODE";

    /// The sessions of statements that begin like this and wait for a lock.
    async fn blocked(db: &Database, statement: &str) -> Vec<String> {
        let sessions = format!(
            "SELECT pid::text FROM pg_stat_activity
             WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '{statement}%'"
        );
        db.texts(&sessions).await
    }

    /// The sessions of the lists that wait for the lock.
    async fn lists(db: &Database) -> Vec<String> {
        blocked(db, "-- Lists the interventions").await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reads_that_are_blocked_leave_connections_to_the_sagas() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Bystander,)).await?;
        let before = scoop.launch(Grandchild).await?;
        assert_eq!(before.ends().await?, Outcome::Committed);
        let read = || {
            let (scoop, hierarchy) = (scoop.clone(), before.id());
            tokio::spawn(async move {
                scoop.operate().failures().interventions(hierarchy).await.map(|done| done.len())
            })
        };
        let lock = db.pool().begin_with(LOCK).await?;
        let first = read();
        eventually("a list is read", async || lists(&db).await.len() == 1).await;
        let session = lists(&db).await;
        // More than the program has connections.
        let others: Vec<_> = (0..8).map(|_| read()).collect();
        let beside = scoop.launch(Grandchild).await?;
        assert_eq!(beside.ends().await?, Outcome::Committed);
        assert_eq!(db.client().find(beside.id()).await?.ends().await?, Outcome::Committed);
        // A look at one hierarchy does not wait behind lists.
        assert_eq!(before.status().await?, scoop::Status::Ended(Outcome::Committed));
        assert_eq!(lists(&db).await, session);
        // The turn of a read that is dropped goes to one other, while the lock is still held.
        first.abort();
        assert!(first.await.is_err_and(|ended| ended.is_cancelled()));
        let is_another = |lists: &[String]| lists.len() == 1 && lists != session;
        eventually("another list is read instead", async || is_another(&lists(&db).await)).await;
        assert_eq!(scoop.launch(Grandchild).await?.ends().await?, Outcome::Committed);
        assert!(is_another(&lists(&db).await));
        lock.rollback().await?;
        for read in others {
            assert_eq!(read.await??, 0);
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn read_that_waits_too_long_for_others_fails_and_launches_go_on() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<Bystander>().retry_for(Duration::from_secs(1)).start().await?;
        let launched = scoop.launch(Grandchild).await?;
        let lock = db.pool().begin_with(LOCK).await?;
        let (reader, hierarchy) = (scoop.clone(), launched.id());
        let read = tokio::spawn(async move {
            reader.operate().failures().interventions(hierarchy).await.map(|done| done.len())
        });
        eventually("a list is read", async || lists(&db).await.len() == 1).await;
        let refused = scoop.operate().handlers().list().await.unwrap_err();
        assert!(refused.is_busy() && refused.is_transient(), "{refused:?}");
        assert_eq!(scoop.launch(Grandchild).await?.ends().await?, Outcome::Committed);
        lock.rollback().await?;
        assert_eq!(read.await??, 0);
        scoop.operate().handlers().list().await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_reads_a_list_while_another_is_blocked() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().retry_for(Duration::from_secs(10)).client().await?;
        let hierarchy = scoop.launch(Grandchild).await?.id();
        let lock = db.pool().begin_with(LOCK).await?;
        let reader = scoop.clone();
        let read = tokio::spawn(async move {
            reader.operate().failures().interventions(hierarchy).await.map(|done| done.len())
        });
        eventually("a list is read", async || lists(&db).await.len() == 1).await;
        scoop.operate().handlers().list().await?;
        lock.rollback().await?;
        assert_eq!(read.await??, 0);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn counts_of_a_program_may_take_longer_than_its_patience() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<Bystander>().retry_for(Duration::from_secs(1)).start().await?;
        assert_eq!(scoop.launch(Grandchild).await?.ends().await?, Outcome::Committed);
        let failures = "BEGIN; LOCK TABLE scoop.ended_run IN ACCESS EXCLUSIVE MODE";
        let lock = db.pool().begin_with(failures).await?;
        let counting = scoop.clone();
        let counts = tokio::spawn(async move { counting.operate().runs().count().exact().await });
        // Then no read has got a turn for as long as the retry time.
        let is_refused = async || scoop.operate().handlers().list().await.is_err_and(|error| error.is_busy());
        eventually("a count has the only turn", is_refused).await;
        lock.rollback().await?;
        let counts = counts.await??;
        assert_eq!(counts.finished.len(), 1, "{counts:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn dropped_dry_runs_leave_their_connections() -> Result<()> {
        let db = Database::new().await;
        // Less than the time limit of their statements.
        let scoop = db.scoop().retry_for(Duration::from_secs(20)).client().await?;
        let hierarchy = scoop.launch(Grandchild).await?.id();
        let run = uuid::Uuid::new_v4();
        db.execute(&format!(
            "INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
             SELECT '{hierarchy}', '{run}', ARRAY['{hierarchy}', '{run}']::uuid[], gen_random_uuid(), 'forged', 'forged', now()"
        ))
        .await;
        let handlers = "BEGIN; LOCK TABLE scoop.handler IN ACCESS EXCLUSIVE MODE";
        let lock = db.pool().begin_with(handlers).await?;
        let checks = async || blocked(&db, "-- What a decision about a failed rollback needs").await;
        let mut before: Vec<String> = vec![];
        // As many as the client has connections.
        for _ in 0..2 {
            let asked = scoop.clone();
            let dry_run = tokio::spawn(async move { asked.operate().failures().retry(run).dry_run().await });
            let begins = async || checks().await.iter().any(|session| !before.contains(session));
            eventually("a request is checked", begins).await;
            before = checks().await;
            dry_run.abort();
            assert!(dry_run.await.is_err_and(|ended| ended.is_cancelled()));
        }
        assert!(scoop.operate().failures().interventions(hierarchy).await?.is_empty());
        lock.rollback().await?;
        Ok(())
    }
}
