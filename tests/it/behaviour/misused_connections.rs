//! Misuses of the transaction and the connection by steps, apart from ending them.

use scoop::embedded::Embedded;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPoolOptions};

use super::*;
use crate::support::{Database, eventually};
use futures_util::TryStreamExt;

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "misuse")]
enum Misuse {
    ForgetANestedTransaction,
    ForgetTwoAndFail,
    DeleteOwnRun,
    ChangeOwnRun,
    ResetSettings,
    ResetTheMark,
    ForgetACopy,
    DropACopy,
    FailInACopy,
    ForgetACopyAndFail,
    GoOnInACopy,
    ForgetACopyOut,
    DropACopyOut,
    DropACopyOutAndFail,
}

#[derive(Default)]
struct Misusing;

#[saga(name = "misusing")]
#[subscribes(Misuse)]
impl Misusing {
    #[step]
    async fn misuse(&self, scope: &mut Scope<'_>, what: &Misuse) -> Result<()> {
        let tx = scope.tx().await?;
        match what {
            Misuse::ForgetANestedTransaction => {
                let mut nested = tx.begin().await?;
                sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *nested).await?;
                std::mem::forget(nested);
            }
            Misuse::ForgetTwoAndFail => {
                let mut nested = tx.begin().await?;
                let mut innermost = nested.begin().await?;
                sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *innermost).await?;
                std::mem::forget(innermost);
                std::mem::forget(nested);
                return Err(Error::msg("it fails, too"));
            }
            Misuse::DeleteOwnRun => {
                sqlx::query("DELETE FROM scoop.run").execute(tx).await?;
            }
            Misuse::ChangeOwnRun => {
                sqlx::query("UPDATE scoop.run SET epoch = epoch + 1").execute(tx).await?;
            }
            Misuse::ResetSettings | Misuse::ResetTheMark => {
                sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *tx).await?;
                let reset =
                    if matches!(what, Misuse::ResetSettings) { "RESET ALL" } else { "RESET scoop_run.claim" };
                sqlx::raw_sql(reset).execute(tx).await?;
            }
            Misuse::ForgetACopy | Misuse::ForgetACopyAndFail | Misuse::GoOnInACopy => {
                let mut copy = tx.copy_in_raw(COPY_IN).await?;
                copy.send(&b"1\n"[..]).await?;
                std::mem::forget(copy);
                if matches!(what, Misuse::ForgetACopyAndFail) {
                    return Err(Error::msg("it fails, too"));
                }
                if matches!(what, Misuse::GoOnInACopy) {
                    sqlx::query("INSERT INTO effect VALUES (1)").execute(tx).await?;
                }
            }
            Misuse::DropACopy | Misuse::FailInACopy => {
                let mut copy = tx.copy_in_raw(COPY_IN).await?;
                copy.send(&b"1\n"[..]).await?;
                if matches!(what, Misuse::FailInACopy) {
                    return Err(Error::msg("it fails, too"));
                }
            }
            Misuse::ForgetACopyOut => {
                let mut copy = tx.copy_out_raw(COPY_OUT).await?;
                copy.try_next().await?;
                std::mem::forget(copy);
            }
            Misuse::DropACopyOut | Misuse::DropACopyOutAndFail => {
                tx.copy_out_raw(COPY_OUT).await?.try_next().await?;
                if matches!(what, Misuse::DropACopyOutAndFail) {
                    return Err(Error::msg("it fails, too"));
                }
            }
        }
        Ok(())
    }
}

const COPY_IN: &str = "COPY effect FROM STDIN";

const COPY_OUT: &str = "COPY (SELECT * FROM generate_series(1, 100000)) TO STDOUT";

/// Writes on the connection that the others had.
#[derive(Default)]
struct Innocent;

#[saga(name = "innocent")]
#[subscribes(Root)]
impl Innocent {
    #[step]
    async fn write(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        assert_eq!(scope.attempt(), 0, "an attempt failed");
        sqlx::query("INSERT INTO effect VALUES (2)").execute(scope.tx().await?).await?;
        Ok(())
    }
}

async fn fails(what: Misuse, text: &str) -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (n int)").await;
    let scoop = db.start((Misusing, Innocent)).await?;
    for count in 1..=5 {
        let Outcome::RolledBack(failure) = scoop.launch(what).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.contains(text), "{failure}");
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        assert_eq!(db.texts("SELECT n::text FROM effect").await, vec!["2"; count]);
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_transaction_that_is_forgotten_fails_the_step_and_writes_nothing() -> Result<()> {
    fails(Misuse::ForgetANestedTransaction, "the step left a nested transaction open").await
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_transactions_that_a_failed_step_has_forgotten_are_rolled_back() -> Result<()> {
    fails(Misuse::ForgetTwoAndFail, "it fails, too").await
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_deletes_its_own_run_fails() -> Result<()> {
    fails(Misuse::DeleteOwnRun, "changed or deleted its own row").await
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_changes_its_own_run_fails() -> Result<()> {
    fails(Misuse::ChangeOwnRun, "changed or deleted its own row").await
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_resets_the_settings_of_its_transaction_fails_with_the_statements_that_do_that()
-> Result<()> {
    let reset = "ended its transaction itself, or reset the settings of it";
    fails(Misuse::ResetSettings, reset).await?;
    fails(
        Misuse::ResetTheMark,
        "COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION, RESET ALL, RESET scoop_run.claim",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn copy_that_is_left_open_fails_the_step() -> Result<()> {
    for copy in [Misuse::ForgetACopy, Misuse::DropACopy, Misuse::ForgetACopyOut, Misuse::DropACopyOut] {
        fails(copy, "the step left a COPY open").await?;
    }
    fails(Misuse::GoOnInACopy, "during COPY").await
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_fails_during_a_copy_has_its_own_failure() -> Result<()> {
    for copy in [Misuse::FailInACopy, Misuse::ForgetACopyAndFail, Misuse::DropACopyOutAndFail] {
        fails(copy, "it fails, too").await?;
    }
    Ok(())
}

/// SQL that a step leaves traces of in its session.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "traces")]
struct Traces(String);

#[derive(Default)]
struct Careless;

#[saga(name = "careless")]
#[subscribes(Traces)]
impl Careless {
    #[step]
    async fn leave(&self, scope: &mut Scope<'_>, Traces(sql): &Traces) -> Result<()> {
        sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.clone())).execute(scope.tx().await?).await?;
        Ok(())
    }
}

/// Has two steps, and looks for traces in both.
#[derive(Default)]
struct Tidy;

#[saga(name = "tidy")]
#[subscribes(Child)]
impl Tidy {
    #[step]
    async fn look(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        look(scope).await
    }

    #[step]
    async fn look_again(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
        look(scope).await
    }
}

async fn look(scope: &mut Scope<'_>) -> Result<()> {
    assert_eq!(scope.attempt(), 0, "an attempt failed");
    let tx = scope.tx().await?;
    sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *tx).await?;
    let traces = "SELECT concat_ws(' ', current_setting('search_path'), current_setting('statement_timeout'), current_user,
        (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_cursors WHERE name = 'left_open'),
        (SELECT count(*) FROM pg_class WHERE relname = 'left_behind' AND pg_table_is_visible(oid)),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 4711),
        current_setting('scoop_test.x', true))";
    let found: String = sqlx::query_scalar(traces).fetch_one(&mut *tx).await?;
    // As the pool has made its connections.
    let user: String = sqlx::query_scalar("SELECT session_user").fetch_one(tx).await?;
    assert_eq!(found.trim_end(), format!("public, pg_temp 1h {user} 0 0 0 0"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_a_step_has_left_traces_in_is_as_new_for_the_next_one() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (n int); CREATE ROLE careless_role SUPERUSER").await;
    let options = PgPoolOptions::new().max_connections(5).after_connect(|connection, _| {
        Box::pin(async move {
            let set = "SET search_path = public, pg_temp; SET statement_timeout = '1h'";
            sqlx::raw_sql(set).execute(connection).await.map(drop)
        })
    });
    let pool = options.connect_with((*db.pool().connect_options()).clone()).await?;
    let builder = Scoop::builder().postgres(pool.clone()).only::<Careless>().only::<Tidy>();
    let scoop = builder.start().await?;
    for sql in [
        "SET search_path = pg_catalog",
        "SET statement_timeout = '2s'; SET scoop_test.x = 'y'",
        "SET ROLE careless_role; RESET statement_timeout",
        "SET SESSION AUTHORIZATION careless_role",
        "LISTEN something",
        "CREATE TEMP TABLE IF NOT EXISTS left_behind (n int)",
        "SELECT pg_advisory_lock(4711) WHERE pg_try_advisory_lock(4711)",
        "DECLARE left_open CURSOR WITH HOLD FOR SELECT 1",
        "DISCARD PLANS",
        "RESET ALL",
    ] {
        for _ in 0..4 {
            scoop.launch(Traces(sql.into())).await?.ends().await?;
            let outcome = scoop.launch(Child).await?.ends().await?;
            assert_eq!(outcome, Outcome::Committed, "after {sql}");
        }
        // Beside each other, too, so that connections pass from step to step.
        let careless = scoop.launch_all((0..5).map(|_| Traces(sql.into()))).await?;
        let tidy = scoop.launch_all([Child, Child, Child, Child, Child]).await?;
        for root in careless {
            root.ends().await?;
        }
        for root in tidy {
            assert_eq!(root.ends().await?, Outcome::Committed, "beside {sql}");
        }
    }
    scoop.shutdown().await?;
    pool.close().await;
    db.execute("DROP ROLE careless_role").await;
    Ok(())
}

/// Counts the steps that do not have the settings of the hooks.
#[derive(Default)]
struct Hooked;

#[saga(name = "hooked")]
#[subscribes(Root)]
impl Hooked {
    #[step]
    async fn look(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        note_settings(scope).await
    }

    #[step]
    async fn look_again(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        note_settings(scope).await
    }

    #[step]
    async fn change(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        note_settings(scope).await?;
        let change = "SET work_mem = '9MB'; SET search_path = pg_catalog; SET lock_timeout = '9s'; SET enable_sort = on";
        sqlx::raw_sql(change).execute(scope.tx().await?).await?;
        Ok(())
    }
}

async fn note_settings(scope: &mut Scope<'_>) -> Result<()> {
    let note = "INSERT INTO public.found SELECT concat_ws(' ', current_setting('work_mem'), current_setting('search_path'),
        current_setting('lock_timeout'), current_setting('role'), current_setting('enable_sort'))";
    sqlx::query(note).execute(scope.tx().await?).await?;
    Ok(())
}

async fn set(connection: &mut PgConnection, settings: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(settings).execute(connection).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_hooks_of_a_pool_hold_in_every_step() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE found (settings text); CREATE ROLE hooked_role SUPERUSER").await;
    let options = PgPoolOptions::new().max_connections(6).after_connect(|connection, _| {
        Box::pin(set(
            connection,
            "SET work_mem = '6MB'; SET search_path = public, pg_temp; SET ROLE hooked_role",
        ))
    });
    let options = options.before_acquire(|connection, _| {
        Box::pin(async {
            set(connection, "SET work_mem = '7MB'; SET lock_timeout = '7s'").await.map(|()| true)
        })
    });
    let pool = options.connect_with((*db.pool().connect_options()).clone()).await?;
    let scoop = Scoop::builder().postgres(pool.clone()).only::<Hooked>().start().await?;
    let is_idle = async || pool.num_idle() == usize::try_from(pool.size()).unwrap();
    // A pool does not call `before_acquire` for a new connection.
    scoop.launch(Root).await?.ends().await?;
    eventually("the connections are back", is_idle).await;
    let first = db.texts("SELECT DISTINCT settings FROM found").await;
    // From here on none is new.
    let mut all = vec![];
    while pool.size() < 6 {
        all.push(pool.acquire().await?);
    }
    drop(all);
    eventually("the connections are back", is_idle).await;
    for _ in 0..3 {
        sqlx::raw_sql("DELETE FROM found").execute(&pool).await?;
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        eventually("the connections are back", is_idle).await;
    }
    scoop.shutdown().await?;
    // The program itself finds the settings, too.
    sqlx::query(
        "INSERT INTO found SELECT concat_ws(' ', current_setting('work_mem'), current_setting('search_path'),
        current_setting('lock_timeout'), current_setting('role'), current_setting('enable_sort'))",
    )
    .execute(&pool)
    .await?;
    pool.close().await;
    let found = db.texts("SELECT DISTINCT settings FROM found").await;
    db.execute("DROP ROLE hooked_role").await;
    assert!(
        first.iter().all(|it| it.contains(" public, pg_temp ") && it.ends_with(" hooked_role on")),
        "{first:?}"
    );
    assert_eq!(found, ["7MB public, pg_temp 7s hooked_role on"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_leave_no_error_in_the_log_of_the_server() -> Result<()> {
    if !Embedded::is_installed() {
        eprintln!("not tested: there is no PostgreSQL on this machine");
        return Ok(());
    }
    let server = Embedded::start().await?;
    let pool = PgPoolOptions::new().max_connections(6).connect_with(server.connect_options()).await?;
    sqlx::raw_sql("CREATE TABLE effect (n int)").execute(&pool).await?;
    let scoop = Scoop::builder().postgres(pool.clone()).only::<Careless>().only::<Innocent>().start().await?;
    for sql in ["SELECT 1", "SET work_mem = '9MB'", "SELECT pg_advisory_lock(1)", "DISCARD PLANS"] {
        for root in scoop.launch_all((0..10).map(|_| Traces(sql.into()))).await? {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        for root in scoop.launch_all((0..10).map(|_| Root)).await? {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
    }
    scoop.shutdown().await?;
    pool.close().await;
    let log = std::fs::read_to_string(server.folder().join("server.log"))?;
    for level in ["ERROR:", "WARNING:", "scoop_session"] {
        assert!(!log.contains(level), "{log}");
    }
    Ok(())
}
