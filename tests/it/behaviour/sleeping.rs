//! Sleeping, and beginning later, beyond the conformance scenarios.

use std::time::{Duration, Instant, SystemTime};

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, handled, invoked};

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
        while db.time().await <= until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        root.comes_to(|tree| tree.roots().iter().any(|run| run.state == RunState::Waiting)).await?;
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
            (state("child-handler"), state("root-handler"))
                == (Some(&RunState::Committed), Some(&RunState::Sleeping))
        };
        root.comes_to(rests).await?;
        first.shutdown().await?;

        let second = start(&db, &gate).await?;
        let root = second.find(root.id()).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        let woken = db.history().await.only("COMMITTED", "root-handler").micros();
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
        db.history().await.of(&["root-handler"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1 wait
            M0 ROLLING_BACK root-handler 1
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
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
        history.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=0 wait
            M0 SUSPENDED root-handler 0 next=0 wait
            M0 SUSPENDED root-handler 0 wait
            M0 COMMITTED root-handler 0",
        );
        let (seen, committed) =
            (history.only("SEEN", "root-handler"), history.only("COMMITTED", "root-handler"));
        let lasted = committed.micros() - seen.micros();
        assert!(lasted >= 90_000, "{lasted} µs for three times 30 ms");
        Ok(())
    }
}

mod polls {
    use super::*;

    handler! {
        Poller: "poller" on Root;
        #[step(name = "poll")]
        async fn poll(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<PollerStep>> {
            if scope.iteration() == 19 {
                return Ok(Next::Continue);
            }
            scope.sleep(Duration::from_millis(3)).await?;
            Ok(Next::Repeat)
        }
    }

    /// A poll is one event.
    #[tokio::test(flavor = "multi_thread")]
    async fn loop_of_twenty_polls_leaves_an_event_for_each() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<Poller>().poll_interval(NEVER).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        let history = db.history().await;
        let counts = ["EMITTED", "SEEN", "SUSPENDED", "COMMITTED"].map(|kind| history.count(kind));
        assert_eq!((counts, history.rows().len()), ([1, 1, 20, 1], 23), "{history}");
        Ok(())
    }
}

/// Children, failures and rollbacks during a sleep.
mod meanwhile {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Trip {
        millis: u64,
    }

    handler! {
        RootHandler: "root-handler" on Trip;
        #[step(name = "0", on_child_failure = accept, rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, trip: &Trip) -> Result<()> {
            invoked(scope);
            // The latest one counts.
            for millis in [trip.millis / 2, trip.millis, 0] {
                scope.sleep(Duration::from_millis(millis)).await?;
            }
            scope.launch(Child).await?;
            Ok(())
        }

        async fn accept(&self, scope: &mut Scope<'_>, _: &Trip, _: &Failure) -> Result<()> {
            handled(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, trip: &Trip, _: &Failure) -> Result<()> {
            compensated(scope);
            scope.sleep(Duration::from_millis(trip.millis)).await
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Trip) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        #[step(name = "0")]
        async fn zero(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
            Err(SIMULATED.into())
        }
    }

    /// Neither a failed child nor a rollback ends a sleep; a compensation may sleep as well.
    #[tokio::test(flavor = "multi_thread")]
    async fn failed_child_does_not_end_a_sleep_and_a_compensation_sleeps() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().poll_interval(NEVER);
        let scoop = scoop.start().await?;
        let root = scoop.launch(Trip { millis: 150 }).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "invoke root-handler/0
            hcf root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        let history = db.history().await.of(&["root-handler"]);
        history.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1 wait
            M0 SUSPENDED root-handler 0 next=1 cfhi=0
            M0 ROLLING_BACK root-handler 1
            M0 SUSPENDED root-handler RBC(0[0,0])
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,]) wait
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        let rows = history.rows();
        // A sleep counts from its request, a little before its step is recorded.
        for (before, after) in [(1, 4), (8, 10)] {
            let lasted = rows[after].micros() - rows[before].micros();
            assert!(lasted >= 150_000, "{lasted} µs after row {before} in\n{history}");
        }
        Ok(())
    }

    /// A request wakes a run that sleeps beside its child, and so does a deadline.
    #[tokio::test(flavor = "multi_thread")]
    async fn run_that_sleeps_gives_up_at_once() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().poll_interval(NEVER).start().await?;
        let asleep = |tree: &Tree| tree.roots().iter().any(|run| run.state == RunState::Sleeping);
        let hour = || Trip { millis: 3_600_000 };
        let cancelled = scoop.launch(hour()).await?;
        let tree = cancelled.comes_to(asleep).await?;
        assert!(tree.roots()[0].sleeps_until() > Some(db.time().await), "{tree}");
        // If the deadline passes before the run sleeps, another run has a longer one.
        let mut deadline = Duration::from_millis(200);
        let late = loop {
            let late = scoop.launch(hour()).deadline(deadline).await?;
            let launched = Instant::now();
            let tree = late.comes_to(|tree| asleep(tree) || launched.elapsed() > deadline).await?;
            if asleep(&tree) {
                break late;
            }
            deadline *= 2;
        };
        scoop.cancel(cancelled.id(), "enough").await?;
        for root in [cancelled, late] {
            let rolls_back = |tree: &Tree| tree.roots().iter().any(|run| run.rolling_back);
            let tree = root.comes_to(rolls_back).await?;
            let turned =
                tree.roots()[0].events.iter().any(|event| event.kind == scoop::EventKind::RollingBack);
            assert!(turned, "{tree}");
        }
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
