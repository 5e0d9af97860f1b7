//! Futures that are dropped before they are ready, as `select!` and `timeout` do: no connection
//! stays behind in the middle of a transaction.

use std::future::{Future, IntoFuture};
use std::task::{Context, Waker};

use super::*;
use crate::support::{Database, eventually, takes};

/// Begins a future and drops it.
fn cancelled<T>(future: impl Future<Output = T>) {
    let mut future = Box::pin(future);
    // Another thread may have made it ready; then it is dropped as well.
    let _ = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

const IDLE_IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";

mod of_a_step {
    use super::*;

    #[derive(Default)]
    struct Hasty;

    #[saga]
    #[subscribes(Root)]
    impl Hasty {
        #[step]
        async fn hasten(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            cancelled(scope.tx());
            Ok(())
        }

        #[step]
        async fn write(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            cancelled(scope.tx());
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_cancelled_tx_leaves_no_open_transaction_behind() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let scoop = db.start((Hasty,)).await?;
        for _ in 0..5 {
            let root = scoop.launch(Root).await?;
            assert_eq!(root.ends().await?, Outcome::Committed);
            // An end that only the session of its transaction sees does not count.
            let elsewhere = Scoop::client(db.another_pool(1).await).find(root.id()).await?;
            assert_eq!(elsewhere.ends().await?, Outcome::Committed);
        }
        let admin = db.another_pool(1).await;
        eventually("no session is left in a transaction", async || {
            sqlx::query_scalar(IDLE_IN_TRANSACTION).fetch_one(&admin).await.is_ok_and(|idle: i64| idle == 0)
        })
        .await;
        let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effect").fetch_one(&admin).await?;
        assert_eq!(effects, 5);
        Ok(())
    }
}

mod of_the_program {
    use super::*;

    handler! {
        ChildHandler: "child-handler" on Child;
        step "nothing" nothing => done();
    }

    /// An HTTP handler does this when its client disconnects.
    #[tokio::test(flavor = "multi_thread")]
    async fn cancelled_begin_on_the_pool_does_not_swallow_launches() -> Result<()> {
        let db = Database::new().await;
        let admin = db.another_pool(1).await;
        let scoop = db.start((ChildHandler,)).await?;
        // A pool needs a moment to take a connection back, and not every time is a bad one.
        for _ in 0..30 {
            cancelled(db.pool().begin());
            takes(10).await;
        }
        let mut roots = vec![];
        for _ in 0..6 {
            roots.push(scoop.launch(Child).await?);
        }
        let launched: i64 =
            sqlx::query_scalar("SELECT count(*) FROM scoop.message").fetch_one(&admin).await?;
        assert_eq!(launched, 6, "another session sees no more");
        let elsewhere = Scoop::client(admin);
        for root in roots {
            assert_eq!(elsewhere.find(root.id()).await?.ends().await?, Outcome::Committed);
        }
        Ok(())
    }
}

mod of_a_request {
    use super::*;
    use crate::support::Gate;

    handler! {
        Held(gate): "held-request" on Root;
        step "hold" hold => at_gate();
    }

    /// Later writes of the engine are visible to other sessions, on every connection.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_cancelled_request_leaves_the_engine_no_open_transaction() -> Result<()> {
        let db = Database::new().await;
        let admin = db.another_pool(1).await;
        let gate = Gate::default();
        let scoop = db.start((Held { gate: gate.clone() },)).await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        for _ in 0..30 {
            cancelled(scoop.rollback(root.id(), "the customer left").into_future());
            takes(10).await;
        }
        eventually("no session is left in a transaction", async || {
            sqlx::query_scalar(IDLE_IN_TRANSACTION).fetch_one(&admin).await.is_ok_and(|idle: i64| idle == 0)
        })
        .await;
        // Not the first run: a request goes on without its caller, perhaps until after the commit.
        let later = scoop.launch(Root).await?;
        gate.open(2);
        let elsewhere = Scoop::client(admin);
        assert_eq!(elsewhere.find(later.id()).await?.ends().await?, Outcome::Committed);
        elsewhere.find(root.id()).await?.ends().await?;
        Ok(())
    }
}
