//! Processes that stop, die, or lose their connections: nothing is lost, nothing done twice.

use std::time::Duration;

use scoop::operate::OperateError;
use sqlx::PgPool;

use super::*;
use crate::support::{Database, Gate, calls_of, eventually, invoked};

mod shutdown {
    use super::*;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero => at_gate();
        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_runs_at_shutdown_is_recorded_and_the_next_start_goes_on() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        // Only the launch makes it look for work, so that it does not during its shutdown.
        let never = Duration::from_secs(3600);
        let start = async || {
            let scoop = db.scoop().only::<RootHandler>().poll_interval(never);
            scoop.provide(RootHandler { gate: gate.clone() }).start().await
        };
        let first = start().await?;
        let root = first.launch(Root).await?;
        gate.arrivals(1).await;
        // Requests the shutdown, without waiting for its end.
        let asked = tokio::time::timeout(Duration::from_millis(1), first.shutdown()).await;
        assert!(asked.is_err(), "the step still runs");
        gate.open(1);
        first.shutdown().await?;
        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1",
        );
        assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0);

        let second = start().await?;
        let root = second.find(root.id()).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1",
        );
        Ok(())
    }

    /// Other processes are notified. Otherwise they would find the run within a minute.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_handed_back_is_taken_by_another_process_at_once() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let start = async || {
            let scoop = db.scoop().only::<RootHandler>().poll_interval(Duration::from_secs(3600));
            scoop.provide(RootHandler { gate: gate.clone() }).start().await
        };
        let (first, second) = (start().await?, start().await?);
        let root = first.launch(Root).await?;
        gate.arrivals(1).await;
        let asked = tokio::time::timeout(Duration::from_millis(1), first.shutdown()).await;
        assert!(asked.is_err(), "the step still runs");
        gate.open(1);
        first.shutdown().await?;
        let root = second.find(root.id()).await?;
        let ends = tokio::time::timeout(Duration::from_secs(30), root.ends()).await;
        assert_eq!(ends.expect("the other process was notified")?, Outcome::Committed);
        Ok(())
    }

    /// A message launched through a stopped program is left to the next.
    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_new_is_begun_after_a_shutdown() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;
        scoop.shutdown().await?;
        scoop.launch(Root).await?;
        db.history().await.expect("M0 EMITTED · ·");
        assert_eq!(gate.arrived(), 0);
        Ok(())
    }

    /// The server of `DATABASE_URL` goes on, if there is one.
    fn error<T>(answer: Result<T, impl Into<OperateError>>) -> Option<OperateError> {
        answer.err().map(Into::into)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn operation_on_a_private_server_that_was_shut_down_names_the_shutdown() -> Result<()> {
        if std::env::var_os("DATABASE_URL").is_some() {
            return Ok(());
        }
        let gate = Gate::default();
        let scoop = Scoop::builder().embedded().only::<RootHandler>();
        let scoop = scoop.provide(RootHandler { gate: gate.clone() }).start().await?;
        gate.open(1);
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        scoop.shutdown().await?;
        for (operation, failed) in [
            ("launch", error(scoop.launch(Root).await)),
            ("launch with a key", error(scoop.launch(Root).unique("7").await)),
            ("launch of several", error(scoop.launch_all([Root, Root]).await)),
            ("list", error(scoop.operate().runs().list().await)),
            ("find", error(scoop.find(root.id()).await)),
            ("cancel", error(scoop.cancel(root.id(), "not wanted").await)),
            ("status", error(root.status().await)),
            ("wait", error(root.wait().await)),
            ("result", error(root.result::<Root>().await)),
            ("tree", error(root.tree().await)),
        ] {
            let error = failed.expect(operation);
            assert!(error.is_unavailable() && !error.may_have_happened(), "{operation}: {error:?}");
            let shown = error.to_string();
            for part in
                ["was shut down", "private PostgreSQL", "nothing was done", "after the last operation"]
            {
                assert!(shown.contains(part), "{operation}: {shown}");
            }
        }
        Ok(())
    }
}

mod death {
    use super::*;

    struct RootHandler {
        gate: Gate,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            let sql = "INSERT INTO effect VALUES ($1)";
            sqlx::query(sql).bind(scope.idempotency_key()).execute(scope.tx().await?).await?;
            self.gate.pass().await;
            Ok(())
        }
    }

    /// A process of its own runtime, which is gone in the middle of a step.
    #[tokio::test(flavor = "multi_thread")]
    async fn another_process_takes_over_from_a_dead_one() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (key text)").await;
        let gate = Gate::default();
        let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let root = {
            let (gate, options) = (gate.clone(), db.pool().connect_options());
            let launched = doomed.spawn(async move {
                let pool = sqlx::postgres::PgPoolOptions::new().max_connections(5);
                let pool = pool.connect_with((*options).clone()).await?;
                let scoop = Scoop::builder().postgres(pool).only::<RootHandler>();
                let scoop = scoop.provide(RootHandler { gate }).start().await?;
                let root = scoop.launch(Root).await?.id();
                // Dropping the handle would be a shutdown.
                std::mem::forget(scoop);
                Ok::<_, Error>(root)
            });
            launched.await??
        };
        gate.arrivals(1).await;
        doomed.shutdown_background();

        let survivor = db.start((RootHandler { gate: gate.clone() },)).await?;
        gate.arrivals(1).await;
        gate.open(1);
        let root = survivor.find(root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/0",
        );
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        eventually("the dead worker is removed", async || {
            db.number("SELECT count(*) FROM scoop.worker").await == 1
        })
        .await;
        Ok(())
    }
}

mod lost_connections {
    use super::*;

    const HIERARCHIES: i64 = 40;

    /// Which of many hierarchies this is.
    #[derive(Message, Serialize, Deserialize)]
    struct Order(i64);

    #[derive(Message, Serialize, Deserialize)]
    struct Item(i64);

    #[derive(Default)]
    struct Orders;

    /// Every fifth order fails at its end, so that all of it is undone.
    #[saga]
    #[subscribes(Order)]
    impl Orders {
        #[step(rollback = undo)]
        async fn begin(&self, scope: &mut Scope<'_>, Order(order): &Order) -> Result<()> {
            effect(scope, "begin", *order).await?;
            scope.launch(Item(*order)).await?;
            Ok(())
        }

        #[step]
        async fn between(&self, _: &mut Scope<'_>, _: &Order) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn end(&self, scope: &mut Scope<'_>, Order(order): &Order) -> Result<()> {
            effect(scope, "end", *order).await?;
            if order % 5 == 0 { Err(SIMULATED.into()) } else { Ok(()) }
        }

        async fn undo(&self, scope: &mut Scope<'_>, Order(order): &Order, _: &Failure) -> Result<()> {
            effect(scope, "undo begin", *order).await
        }
    }

    handler! {
        Items: "items" on Item;
        #[step(rollback = undo)]
        async fn take(&self, scope: &mut Scope<'_>, Item(order): &Item) -> Result<()> {
            effect(scope, "take", *order).await
        }

        step "pack" pack => done();

        async fn undo(&self, scope: &mut Scope<'_>, Item(order): &Item, _: &Failure) -> Result<()> {
            effect(scope, "undo take", *order).await
        }
    }

    async fn effect(scope: &mut Scope<'_>, deed: &str, order: i64) -> Result<()> {
        let sql = "INSERT INTO effect VALUES ($1, $2)";
        sqlx::query(sql).bind(deed).bind(order).execute(scope.tx().await?).await?;
        Ok(())
    }

    /// Ends all sessions but the one that asks.
    async fn terminate_all(admin: &PgPool) -> Result<i64> {
        let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        Ok(sqlx::query_scalar(sql).fetch_one(admin).await?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_backlog_ends_exactly_once_while_connections_are_cut() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (deed text, number bigint)").await;
        let admin = db.another_pool(1).await;
        let soon = Duration::from_millis(50);
        let scoop = db.scoop().only::<Orders>().only::<Items>().poll_interval(soon).start().await?;
        let roots = scoop.launch_all((0..HIERARCHIES).map(Order)).await?;
        // Cuts after some progress each time.
        for cut in 1..=5 {
            let done = || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effect").fetch_one(&admin);
            eventually("there is progress", async || done().await.is_ok_and(|done| done >= cut * 15)).await;
            assert!(terminate_all(&admin).await? > 0);
        }
        for (order, root) in (0..).zip(&roots) {
            let failed = matches!(root.ends().await?, Outcome::RolledBack(_));
            assert_eq!(failed, order % 5 == 0, "{order}:\n{}", root.tree().await?);
        }

        // Connections of the pool may still be dead.
        let effects: Vec<(String, i64, i64)> = sqlx::query_as(
            "SELECT deed, count(*), count(DISTINCT number) FROM effect GROUP BY deed ORDER BY deed",
        )
        .fetch_all(&admin)
        .await?;
        let expected = [("begin", 40), ("end", 32), ("take", 40), ("undo begin", 8), ("undo take", 8)];
        assert_eq!(effects, expected.map(|(deed, count)| (deed.to_owned(), count, count)));
        let unfinished: i64 = sqlx::query_scalar("SELECT count(*) FROM scoop.run WHERE handler <> 'none'")
            .fetch_one(&admin)
            .await?;
        assert_eq!(unfinished, 0);
        Ok(())
    }
}
