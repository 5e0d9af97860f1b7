//! Sleeping, and beginning later, beyond the conformance scenarios.

use std::time::{Duration, SystemTime};

use super::*;
use crate::support::{Database, Gate, calls_of, invoked};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

mod steps {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Nap {
        until: SystemTime,
        fails: bool,
    }

    handler! {
        RootHandler: "root-handler" on Nap;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, nap: &Nap) -> Result<()> {
            invoked(scope);
            scope.sleep(nap.until).await?;
            // A step that also launches a message waits for both.
            scope.launch(Child).await?;
            Ok(())
        }

        rollback undo => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, nap: &Nap) -> Result<()> {
            invoked(scope);
            assert!(scope.context().is_empty(), "that it slept is not its own context");
            if nap.fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    handler! {
        ChildHandler(gate): "child-handler" on Child;
        step "0" zero => at_gate().silently();
    }

    async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().poll_interval(NEVER);
        Ok(scoop.provide(ChildHandler { gate: gate.clone() }).start().await?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn run_that_sleeps_and_waits_resumes_after_both() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = start(&db, &gate).await?;
        let until = db.time().await + Duration::from_millis(50);
        let root = scoop.launch(Nap { until, fails: false }).await?;
        let slept = |run: &&RunInfo| run.handler == "sleep-handler" && run.state == RunState::Committed;
        root.comes_to(|tree| tree.runs().into_iter().any(|run| slept(&run))).await?;
        calls_of(&root).expect("invoke root-handler/0");
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1",
        );
        Ok(())
    }

    /// The run sleeps while no program lives. The next one wakes it by the clock.
    #[tokio::test(flavor = "multi_thread")]
    async fn restart_neither_wakes_nor_forgets_a_sleeping_run() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        gate.open(1);
        let first = start(&db, &gate).await?;
        let until = db.time().await + Duration::from_secs(2);
        let root = first.launch(Nap { until, fails: false }).await?;
        let rests = |tree: &Tree| {
            let state = |handler: &str| {
                tree.runs().into_iter().find(|run| run.handler == handler).map(|run| &run.state)
            };
            (state("child-handler"), state("sleep-handler"))
                == (Some(&RunState::Committed), Some(&RunState::Pending))
        };
        root.comes_to(rests).await?;
        first.shutdown().await?;

        let second = start(&db, &gate).await?;
        let root = second.find(root.id()).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        let woken = db.history().await.only("COMMITTED", "sleep-handler").micros();
        let until = i64::try_from(until.duration_since(SystemTime::UNIX_EPOCH)?.as_micros())?;
        assert!(woken >= until, "{woken} is before {until}");
        Ok(())
    }

    /// A time that has passed is no reason to wait. The sleep itself has nothing to undo.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_sleep_that_is_over_is_undone_with_the_step() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        gate.open(1);
        let scoop = start(&db, &gate).await?;
        let root = scoop.launch(Nap { until: SystemTime::UNIX_EPOCH, fails: true }).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        db.history().await.about(&["M1"]).of(&["sleep-handler"]).expect_with(
            &[("S", serde_json::json!({"SleepUntilKey": {"wakeAfter": "1970-01-01T00:00:00Z"}}))],
            "M1 SEEN sleep-handler · ctx=S
            M1 SUSPENDED sleep-handler sleep ctx=S
            M1 COMMITTED sleep-handler sleep ctx=S
            M1 ROLLING_BACK sleep-handler ·
            M1 SUSPENDED sleep-handler RBC(sleep[0,]) ctx=S
            M1 SUSPENDED sleep-handler RB(sleep[0,]) ctx=S
            M1 ROLLED_BACK sleep-handler RB(sleep[0,]) ctx=S",
        );
        Ok(())
    }
}

mod attribute {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", sleep = "30ms")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(if scope.iteration() < 2 { Next::Repeat } else { Next::Continue })
        }
    }

    /// Each iteration sleeps; so does the last one, before the run ends.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_in_a_loop_sleeps_after_each_iteration() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().poll_interval(NEVER).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/0 it=1
            invoke root-handler/0 it=2",
        );
        let history = db.history().await;
        assert_eq!(history.of(&["sleep-handler"]).count("COMMITTED"), 3);
        let (seen, committed) =
            (history.only("SEEN", "root-handler"), history.only("COMMITTED", "root-handler"));
        let lasted = committed.micros() - seen.micros();
        assert!(lasted >= 90_000, "{lasted} µs for three times 30 ms");
        Ok(())
    }
}

mod delays {
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).delay(Duration::from_millis(300)).await?;
            scope.launch(Child2).await?;
            Ok(())
        }
    }

    handler! {
        Later: "later" on Child;
        step "0" zero => done();
    }

    handler! {
        AtOnce: "at-once" on Child2;
        step "0" zero => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn delayed_messages_begin_when_due() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<Later>().only::<AtOnce>();
        let scoop = scoop.poll_interval(NEVER).start().await?;
        let root = scoop.launch(Root).delay(Duration::from_millis(60)).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke at-once/0
            invoke later/0",
        );
        let history = db.history().await;
        let due = |handler| {
            let seen = history.only("SEEN", handler);
            let due =
                seen.context().expect("it was launched for later")["SleepUntilKey"]["wakeAfter"].as_str();
            let due = OffsetDateTime::parse(due.expect("a time"), &Rfc3339).expect("a time");
            let due = i64::try_from(due.unix_timestamp_nanos() / 1_000).expect("the time fits into 64 bits");
            assert!(seen.micros() >= due, "{handler}:\n{history}");
            due
        };
        // The clock of the server is not known to the millisecond.
        assert!(due("later") - due("root-handler") >= 150_000, "{history}");
        Ok(())
    }

    /// Claims go on from the position of the last one. They still find runs that were due before that.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_due_long_ago_begins_soon() -> Result<()> {
        let db = Database::new().await;
        let (client, scoop) = (db.client(), db.scoop().only::<AtOnce>().poll_interval(NEVER).start().await?);
        let long_ago = db.time().await - Duration::from_secs(3_600);
        for _ in 0..5 {
            let now = client.launch(Child2).await?;
            assert_eq!(now.ends().await?, Outcome::Committed);
            let late = client.launch(Child2).delay(long_ago).await?;
            assert_eq!(late.ends().await?, Outcome::Committed);
        }
        scoop.shutdown().await?;
        Ok(())
    }
}
