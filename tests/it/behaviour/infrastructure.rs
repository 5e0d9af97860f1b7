//! Failures of the database below a step, which user code passes on in errors of its own: the step runs again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, eventually};

#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("the shop's database failed")]
    From(#[from] sqlx::Error),
    #[error(transparent)]
    Transparent(sqlx::Error),
    #[error("boxed")]
    Boxed(#[source] Box<sqlx::Error>),
    #[error("shared")]
    Shared(#[source] Arc<sqlx::Error>),
    #[error("the order was not stored")]
    Deep(#[source] Box<ShopError>),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Wrapped {
    From,
    Transparent,
    Boxed,
    Shared,
    Deep,
    /// As text.
    Hidden,
}

impl Wrapped {
    const ALL: [Self; 5] = [Self::From, Self::Transparent, Self::Boxed, Self::Shared, Self::Deep];

    fn wrap(self, error: sqlx::Error) -> Error {
        match self {
            Self::From => ShopError::from(error).into(),
            Self::Transparent => ShopError::Transparent(error).into(),
            Self::Boxed => ShopError::Boxed(Box::new(error)).into(),
            Self::Shared => ShopError::Shared(Arc::new(error)).into(),
            Self::Deep => ShopError::Deep(Box::new(ShopError::Transparent(error))).into(),
            Self::Hidden => Error::msg(error),
        }
    }
}

/// A statement that fails at the first attempt, and the error that the step makes of it.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "fails")]
struct Fails(String, Wrapped);

#[derive(Default)]
struct Shop;

#[saga]
#[subscribes(Fails)]
impl Shop {
    #[step]
    async fn sell(&self, scope: &mut Scope<'_>, Fails(statement, wrapped): &Fails) -> Result<()> {
        let attempt = scope.attempt();
        let tx = scope.tx().await?;
        sqlx::query("INSERT INTO effect VALUES (1)")
            .execute(&mut *tx)
            .await
            .map_err(|it| wrapped.wrap(it))?;
        if attempt == 0 {
            let statement = sqlx::AssertSqlSafe(statement.clone());
            sqlx::raw_sql(statement).execute(&mut *tx).await.map_err(|it| wrapped.wrap(it))?;
        }
        Ok(())
    }
}

/// A statement that fails with this SQLSTATE.
fn raises(code: &str) -> String {
    format!("DO $$ BEGIN RAISE EXCEPTION 'it fails' USING ERRCODE = '{code}'; END $$")
}

/// How often the step had its effect, for each statement and each way to wrap the error of it.
async fn effects(cases: impl IntoIterator<Item = (String, Wrapped)>) -> Result<Vec<i64>> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (n int)").await;
    let scoop = db.start((Shop,)).await?;
    let mut effects = vec![];
    for (statement, wrapped) in cases {
        scoop.launch(Fails(statement, wrapped)).await?.ends().await?;
        effects.push(db.number("SELECT count(*) FROM effect").await);
        db.execute("TRUNCATE effect").await;
    }
    scoop.shutdown().await?;
    Ok(effects)
}

#[tokio::test(flavor = "multi_thread")]
async fn wrapped_conflict_of_transactions_runs_the_step_again() -> Result<()> {
    let cases =
        Wrapped::ALL.iter().flat_map(|wrapped| ["40001", "40P01"].map(|code| (raises(code), *wrapped)));
    assert_eq!(effects(cases).await?, [1; 10]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_connection_runs_the_step_again_for_every_kind_of_error() -> Result<()> {
    let cut = || "SELECT pg_terminate_backend(pg_backend_pid())".to_owned();
    let cases = Wrapped::ALL.into_iter().chain([Wrapped::Hidden]).map(|wrapped| (cut(), wrapped));
    assert_eq!(effects(cases).await?, [1; 6]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlstate_decides_whether_a_step_runs_again() -> Result<()> {
    let again = ["08006", "40001", "40P01", "53100", "53300", "57P01", "57P03", "58030", "25P03", "25P04"];
    let fails = ["57014", "55P03", "23505", "22012", "25006", "42P01", "P0001"];
    let cases = again.into_iter().chain(fails).map(|code| (raises(code), Wrapped::From));
    let expected: Vec<_> = again.iter().map(|_| 1).chain(fails.iter().map(|_| 0)).collect();
    assert_eq!(effects(cases).await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn error_that_hides_a_conflict_fails_the_step() -> Result<()> {
    assert_eq!(effects([(raises("40P01"), Wrapped::Hidden)]).await?, [0]);
    Ok(())
}

struct Idle {
    gate: Gate,
}

#[saga]
#[subscribes(Root)]
impl Idle {
    #[step]
    async fn idle(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        if scope.attempt() == 0 {
            let limit = "SET LOCAL idle_in_transaction_session_timeout = '10ms'";
            sqlx::query(limit).execute(scope.tx().await?).await?;
            self.gate.pass().await;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_the_server_ended_for_being_idle_runs_the_step_again() -> Result<()> {
    let gate = Gate::default();
    let run = Run::launch((Idle { gate: gate.clone() },), Root).await?;
    gate.arrivals(1).await;
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' AND query LIKE 'SET LOCAL idle%'
        AND datname = current_database()";
    eventually("the session is ended", async || run.db.number(idle).await == 0).await;
    gate.open(1);
    assert_eq!(run.root.ends().await?, Outcome::Committed);
    Ok(())
}

/// Until the table has a row, the database refuses the step.
#[derive(Default)]
struct Refused;

#[saga]
#[subscribes(Root)]
impl Refused {
    #[step]
    async fn insert(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        let tx = scope.tx().await?;
        if sqlx::query("SELECT FROM repaired").fetch_optional(&mut *tx).await?.is_none() {
            sqlx::raw_sql(sqlx::AssertSqlSafe(raises("53100"))).execute(&mut *tx).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_whose_database_fails_runs_again_after_growing_pauses_and_the_tree_says_why() -> Result<()> {
    let db = Database::new().await;
    db.execute(
        "CREATE TABLE repaired ();
        CREATE TABLE public.pause (attempt int PRIMARY KEY, millis bigint);
        CREATE FUNCTION note_pause() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO public.pause VALUES ((NEW.tries).attempts, 1000 * extract(epoch FROM NEW.ready_at - statement_timestamp()));
            RETURN NULL;
        END $$;
        CREATE TRIGGER note_pause AFTER UPDATE ON scoop.run FOR EACH ROW
            WHEN ((NEW.tries).attempts > coalesce((OLD.tries).attempts, 0)) EXECUTE FUNCTION note_pause()",
    )
    .await;
    let scoop = db.scoop().only::<Refused>().poll_interval(Duration::from_millis(20)).start().await?;
    let root = scoop.launch(Root).await?;
    let mut attempts = 0;
    while attempts < 7 {
        let backs_off = |tree: &Tree| {
            let run = tree.roots().first();
            run.is_some_and(|run| run.attempts > attempts && matches!(run.state, RunState::Retrying { .. }))
        };
        let tree = root.comes_to(backs_off).await?;
        attempts = tree.roots()[0].attempts;
        let text = tree.to_string();
        assert!(
            text.contains(&format!("; attempt {attempts} failed: ")) && text.contains("it fails"),
            "{text}"
        );
        // The rest of the pause is skipped.
        db.execute("UPDATE scoop.run SET ready_at = clock_timestamp() WHERE state = 'ready'").await;
    }
    let pauses: Vec<i64> =
        sqlx::query_scalar("SELECT millis FROM public.pause ORDER BY attempt").fetch_all(db.pool()).await?;
    assert!(pauses.len() >= 7 && pauses[6] > 3_200 && pauses.is_sorted(), "{pauses:?} ms");
    db.execute("INSERT INTO repaired DEFAULT VALUES").await;
    db.execute("UPDATE scoop.run SET ready_at = clock_timestamp()").await;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

/// Two runs lock two rows, each in another order.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "crossing")]
struct Crossing(i32, i32);

struct Crossed {
    gate: Gate,
    attempts: Arc<AtomicU32>,
}

#[saga]
#[subscribes(Crossing)]
impl Crossed {
    #[step]
    async fn cross(&self, scope: &mut Scope<'_>, Crossing(first, second): &Crossing) -> Result<()> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        let first_attempt = scope.attempt() == 0;
        for (place, row) in [first, second].into_iter().enumerate() {
            if place == 1 && first_attempt {
                self.gate.pass().await;
            }
            let update = sqlx::query("UPDATE effect SET n = n + 1 WHERE id = $1").bind(row);
            update.execute(scope.tx().await?).await.map_err(ShopError::from)?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_deadlock_rolls_no_saga_back() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (id int, n int); INSERT INTO effect VALUES (1, 0), (2, 0)").await;
    let (gate, attempts) = (Gate::default(), Arc::new(AtomicU32::new(0)));
    let saga = Crossed { gate: gate.clone(), attempts: attempts.clone() };
    let scoop = db.scoop().only::<Crossed>().provide(saga).start().await?;
    let roots = scoop.launch_all([Crossing(1, 2), Crossing(2, 1)]).await?;
    gate.arrivals(2).await;
    gate.open(2);
    for root in roots {
        assert_eq!(root.ends().await?, Outcome::Committed);
    }
    assert_eq!(attempts.load(Ordering::Relaxed), 3, "one of the two was the victim");
    assert_eq!(db.number("SELECT sum(n) FROM effect").await, 4);
    Ok(())
}

/// The engine's operation in the transaction of a step, which takes longer than the limits of that.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "in-a-hurry")]
enum Hurried {
    Settle,
    Detach,
}

struct Hurry {
    gate: Gate,
}

#[saga]
#[subscribes(Hurried)]
impl Hurry {
    #[step]
    async fn hurry(&self, scope: &mut Scope<'_>, what: &Hurried) -> Result<()> {
        if scope.attempt() == 0 {
            sqlx::query("SET LOCAL statement_timeout = '50ms'").execute(scope.tx().await?).await?;
            self.gate.pass().await;
        }
        if let Hurried::Detach = what {
            scope.detach_unique(Child, "once").await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_timeout_in_a_statement_of_the_engine_fails_no_step() -> Result<()> {
    for (what, lock) in [
        (Hurried::Settle, "SELECT FROM scoop.run FOR UPDATE"),
        (Hurried::Detach, "LOCK TABLE scoop.message IN ACCESS EXCLUSIVE MODE"),
    ] {
        let gate = Gate::default();
        let run = Run::launch((Hurry { gate: gate.clone() },), what).await?;
        gate.arrivals(1).await;
        let others = run.db.another_pool(1).await;
        let mut tx = others.begin().await?;
        sqlx::raw_sql(lock).execute(&mut *tx).await?;
        gate.open(1);
        // The lock on the runs holds up the release, which is then in flight; else the release records the attempt.
        let released = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                AND state = 'active' AND query LIKE '-- Makes runs ready that this worker holds%')
            + (SELECT count(*) FROM scoop.run WHERE (tries).attempts > 0)";
        eventually("the run is released", async || run.db.number(released).await > 0).await;
        tx.rollback().await?;
        assert_eq!(run.root.ends().await?, Outcome::Committed);
    }
    Ok(())
}

/// A commit that the server refuses with a conflict, as it may under `SERIALIZABLE`.
#[tokio::test(flavor = "multi_thread")]
async fn conflict_at_the_commit_runs_the_step_again_after_a_pause() -> Result<()> {
    let db = Database::new().await;
    db.execute(
        "CREATE TABLE effect (n int);
         CREATE SEQUENCE commits;
         CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF nextval('commits') < 3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
             RETURN NULL;
         END $$;
         CREATE CONSTRAINT TRIGGER conflict AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION conflict()",
    )
    .await;
    let scoop = db.start((Shop,)).await?;
    let root = scoop.launch(Fails("SELECT 1".into(), Wrapped::From)).await?;
    let reason = "SELECT count(*) FROM scoop.run WHERE reason LIKE '%conflict%' AND (tries).attempts > 0";
    eventually("it is recorded why the step runs again", async || db.number(reason).await > 0).await;
    assert_eq!(root.ends().await?, Outcome::Committed);
    assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
    Ok(())
}
