//! Deep and wide hierarchies, and different surroundings: the clock, the isolation level, the pool.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;

use super::*;
use crate::support::{Database, Gate};

mod deep {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    struct Dig {
        levels_left: u32,
    }

    #[derive(Default)]
    struct Digger;

    #[saga]
    #[subscribes(Dig)]
    impl Digger {
        #[step]
        async fn dig(&self, scope: &mut Scope<'_>, Dig { levels_left }: &Dig) -> Result<()> {
            if *levels_left == 0 {
                return Err(SIMULATED.into());
            }
            scope.launch(Dig { levels_left: levels_left - 1 }).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failure_travels_up_eighty_levels() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Digger,)).await?;
        let outcome = scoop.launch(Dig { levels_left: 80 }).await?.ends().await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        let undone = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLED_BACK'";
        assert_eq!(db.number(undone).await, 81);
        assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);
        Ok(())
    }
}

mod wide {
    use super::*;

    const PARTS: u32 = 120;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "part-of-wide")]
    struct Part(u32);

    #[derive(Default)]
    struct Wide;

    #[saga]
    #[subscribes(Root)]
    impl Wide {
        #[step]
        async fn spread(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            for number in 0..PARTS {
                scope.launch(Part(number)).await?;
            }
            Ok(())
        }
    }

    #[derive(Default)]
    struct PartOfWide;

    #[saga]
    #[subscribes(Part)]
    impl PartOfWide {
        #[step]
        async fn fail_if_even(&self, _: &mut Scope<'_>, Part(number): &Part) -> Result<()> {
            if number % 2 == 0 { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_wide_hierarchy_of_which_half_fails_is_undone() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Wide, PartOfWide)).await?;
        let outcome = scoop.launch(Root).await?.ends().await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        let undone = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLED_BACK'";
        assert_eq!(db.number(undone).await, i64::from(PARTS) + 1);
        assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);
        Ok(())
    }
}

mod around {
    use super::*;

    struct Family {
        gate: Gate,
    }

    #[saga]
    #[subscribes(Root)]
    impl Family {
        #[step]
        async fn launch(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.gate.pass().await;
            for _ in 0..3 {
                scope.launch(Child).await?;
            }
            Ok(())
        }
    }

    handler! {
        ChildOfFamily: "child-of-family" on Child;
        step "ask" ask => executes("SELECT 1");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_clock_set_back_does_not_stop_a_hierarchy() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((Family { gate: gate.clone() }, ChildOfFamily), Root).await?;
        gate.arrivals(1).await;
        // As if the server's clock had been an hour ahead when the last event was written.
        run.db.execute("UPDATE scoop.run SET last_event_at = last_event_at + interval '1 hour'").await;
        gate.open(1);
        assert_eq!(run.root.ends().await?, Outcome::Committed);
        Ok(())
    }

    /// The clock of a test cannot be set back: the events are put forward.
    #[tokio::test(flavor = "multi_thread")]
    async fn clock_behind_the_newest_event_is_part_of_health() -> Result<()> {
        let gate = Gate::default();
        gate.open(1);
        let run = Run::launch((Family { gate }, ChildOfFamily), Root).await?;
        assert_eq!(run.root.ends().await?, Outcome::Committed);
        let client = run.db.client();
        assert!(client.health().await.clock_lag < Duration::from_secs(1));
        let put =
            |sign| format!("UPDATE scoop.message_event SET created_at = created_at {sign} interval '1 hour'");
        run.db.execute(&put("+")).await;
        let lag = client.health().await.clock_lag;
        run.db.execute(&put("-")).await;
        assert!(lag > Duration::from_secs(3_000) && lag < Duration::from_secs(3_601), "{lag:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_stricter_isolation_level_by_default_is_no_obstacle() -> Result<()> {
        const HIERARCHIES: usize = 10;
        for level in ["repeatable read", "serializable"] {
            let db = Database::new().await;
            let options = (*db.pool().connect_options()).clone();
            let options = options.options([("default_transaction_isolation", level)]);
            let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
            let shown: String = sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&pool).await?;
            assert_eq!(shown, level);
            let gate = Gate::default();
            gate.open(HIERARCHIES);
            let scoop = Scoop::builder().postgres(pool).only::<Family>().only::<ChildOfFamily>();
            let scoop = scoop.provide(Family { gate }).start().await?;
            for root in scoop.launch_all((0..HIERARCHIES).map(|_| Root)).await? {
                assert_eq!(root.ends().await?, Outcome::Committed, "{level}");
            }
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn role_that_only_reads_by_default_is_no_obstacle() -> Result<()> {
        let db = Database::new().await;
        let options =
            (*db.pool().connect_options()).clone().options([("default_transaction_read_only", "on")]);
        let options = options.statement_cache_capacity(0);
        let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
        let shown: String = sqlx::query_scalar("SHOW transaction_read_only").fetch_one(&pool).await?;
        assert_eq!(shown, "on");
        let gate = Gate::default();
        gate.open(2);
        for is_proxied in [false, true] {
            let builder = Scoop::builder().postgres(pool.clone());
            let builder = if is_proxied { builder.behind_proxy() } else { builder };
            let scoop =
                builder.only::<Family>().only::<ChildOfFamily>().provide(Family { gate: gate.clone() });
            let scoop = scoop.start().await?;
            assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed, "{is_proxied}");
            scoop.shutdown().await?;
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_that_closes_its_pool_first_can_still_look_and_shut_down() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        gate.open(1);
        let pool = db.another_pool(6).await;
        let scoop = Scoop::builder().postgres(pool.clone()).only::<Family>().only::<ChildOfFamily>();
        let scoop = scoop.provide(Family { gate }).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        let limit = Duration::from_secs(10);
        tokio::time::timeout(limit, pool.close()).await.expect("closing returns");
        assert_eq!(root.ends().await?, Outcome::Committed);
        tokio::time::timeout(limit, scoop.shutdown()).await.expect("shutting down returns")?;
        assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0);
        Ok(())
    }
}
