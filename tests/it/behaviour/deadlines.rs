//! Deadlines: a run that misses one gives up at once, in any state.

use std::time::Duration;

use scoop::{Deadline, DeadlineKind};

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, compensated, invoked};

/// Nothing is found by polling within a test, so runs give up by the clock.
const NEVER: Duration = Duration::from_secs(3_600);

const SOON: Duration = Duration::from_millis(700);

/// A parent, and a child that runs until its stop signal.
mod family {
    use super::*;

    handler! {
        pub(super) RootHandler(gate): "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = handle] => launches(Child);
        step "1" one => at_gate();
        rollback undo => done();
        on_child_failure handle => accepts();
    }

    handler! {
        pub(super) ChildHandler: "child-handler" on Child;
        step "0" zero => executes("INSERT INTO effect VALUES (1)").then(until_stopped());
    }

    pub(super) async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
        db.execute("CREATE TABLE effect (n int)").await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().poll_interval(NEVER);
        Ok(scoop.provide(RootHandler { gate: gate.clone() }).start().await?)
    }
}

/// The child inherits the deadline. Its step completes, and its effects are discarded. The waiting
/// parent gives up for its own deadline, and its failure handler is not called.
#[tokio::test(flavor = "multi_thread")]
async fn missed_deadline_ends_the_run_and_its_waiting_parent() -> Result<()> {
    let db = Database::new().await;
    let scoop = family::start(&db, &Gate::default()).await?;
    let root = scoop.launch(Root).deadline(SOON).source("support").await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    let d = serde_json::json!({"HappyPathDeadlineKey": {"deadline": "…", "source": "support", "trace": []}});
    db.history().await.expect_with(
        &[("D", d)],
        r#"M0 EMITTED · · ctx=D
        M0 SEEN root-handler · ctx=D
        M1 EMITTED root-handler 0 ctx=D
        M0 SUSPENDED root-handler 0 next=1 ctx=D
        M1 SEEN child-handler · ctx=D
        M1 ROLLING_BACK child-handler 0 ctx=D exc=GU@child-handler[MissedHappyPathDeadline(…)@"support"]
        M1 ROLLED_BACK child-handler RB(0[0,]) ctx=D
        M0 ROLLING_BACK root-handler 0 ctx=D exc=GU@root-handler[MissedHappyPathDeadline(…)@"support"]
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) ctx=D
        M0 SUSPENDED root-handler RBC(0[0,]) ctx=D
        M0 SUSPENDED root-handler RB(0[0,]) ctx=D
        M0 ROLLED_BACK root-handler RB(0[0,]) ctx=D"#,
    );
    calls_of(&root).expect(
        "invoke root-handler/0
        invoke child-handler/0
        rollback root-handler/0",
    );
    assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
    Ok(())
}

/// The run is not due yet, and has not begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_before_the_delay_is_over_ends_the_run_in_time() -> Result<()> {
    let db = Database::new().await;
    let scoop = family::start(&db, &Gate::default()).await?;
    let root = scoop.launch(Root).delay(NEVER).deadline(SOON).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    calls_of(&root).expect("");
    let history = db.history().await;
    assert_eq!((history.rows().len(), history.count("ROLLED_BACK")), (4, 1), "{history}");
    Ok(())
}

/// The first of two deadlines counts, whichever it is.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_deadlines_the_earlier_one_counts() -> Result<()> {
    for total_first in [false, true] {
        let db = Database::new().await;
        let scoop = family::start(&db, &Gate::default()).await?;
        let (total, way_forward) = if total_first { (SOON, NEVER) } else { (NEVER, SOON) };
        let root = scoop.launch(Root).total_deadline(total).deadline(way_forward).await?;
        let Outcome::RolledBack(failure) = root.ends().await? else {
            panic!("{}", root.tree().await?);
        };
        let kinds: Vec<_> = failure.root_causes().into_iter().map(|cause| &*cause.kind).collect();
        assert_eq!(kinds, [if total_first { "MissedAbsoluteDeadline" } else { "MissedHappyPathDeadline" }]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_is_kept_does_no_harm() -> Result<()> {
    let gate = Gate::default();
    gate.open(1);
    let db = Database::new().await;
    let scoop = db.start((family::RootHandler { gate },)).await?;
    let root = scoop.launch(Root).deadline(NEVER).total_deadline(NEVER).rollback_deadline(NEVER).await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    Ok(())
}

/// W-09 and W-10: deadlines combine at any depth, and only the newest context counts.
mod depth {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "descend")]
    struct Descend {
        /// The deadline of each level in milliseconds, and those of the levels below.
        deadlines: Vec<u64>,
    }

    struct Level {
        notes: Notes,
    }

    #[saga(name = "level")]
    #[subscribes(Descend)]
    impl Level {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, message: &Descend) -> Result<()> {
            let deadline = scope.context().deadline(DeadlineKind::Absolute)?.expect("one was inherited");
            let trace: Vec<_> = deadline.trace().iter().map(Deadline::source).collect();
            self.notes.add(format!("{} over {}", deadline.source(), trace.join(", ")));
            if let Some((own, below)) = message.deadlines.split_first() {
                let deadlines = below.to_vec();
                let source = format!("level {}", below.len());
                let child = scope.launch(Descend { deadlines });
                child.total_deadline(Duration::from_secs(*own)).source(source).await?;
            }
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn w_09_w_10_children_tighten_at_any_depth_and_never_loosen() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((Level { notes: notes.clone() },)).await?;
        let deadlines = vec![4_000, 2_000, 3_000, 1_000, 5_000];
        let root = scoop.launch(Descend { deadlines }).total_deadline(NEVER).source("client").await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(
            notes.all(),
            [
                "client over ",
                "client over level 4",
                "level 3 over client, level 4",
                "level 3 over client, level 4, level 2",
                "level 1 over level 3, client, level 4, level 2",
                "level 1 over level 3, client, level 4, level 2, level 0",
            ]
        );
        Ok(())
    }
}

/// Deadlines during a rollback.
mod rollbacks {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
    enum Compensation {
        /// Runs until its stop signal, then returns normally.
        UntilStopped,
        /// Waits at the gate.
        Gate,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Fail {
        child: Compensation,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "child-topic")]
    struct Part {
        compensation: Compensation,
    }

    handler! {
        RootHandler: "root-handler" on Fail;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, message: &Fail) -> Result<()> {
            scope.launch(Part { compensation: message.child }).await?;
            Ok(())
        }

        rollback undo => done();
        step "1" one => fails(SIMULATED).silently();
    }

    handler! {
        ChildHandler(gate): "child-handler" on Part;
        step "0" zero [rollback = undo] => done().silently();

        async fn undo(&self, scope: &mut Scope<'_>, part: &Part, _: &Failure) -> Result<()> {
            compensated(scope);
            match part.compensation {
                Compensation::UntilStopped => scope.stop_signal().raised().await,
                Compensation::Gate => self.gate.pass().await,
            }
            Ok(())
        }
    }

    async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().poll_interval(NEVER);
        Ok(scoop.provide(ChildHandler { gate: gate.clone() }).start().await?)
    }

    /// The child, whose rollback was requested, gives up. So does the parent, which waits for it.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_rollback_deadline_ends_the_rollback_of_the_whole_hierarchy() -> Result<()> {
        for total in [false, true] {
            let db = Database::new().await;
            let scoop = start(&db, &Gate::default()).await?;
            let launch = scoop.launch(Fail { child: Compensation::UntilStopped });
            let soon = SOON * 2;
            let launch = if total { launch.total_deadline(soon) } else { launch.rollback_deadline(soon) };
            let root = launch.await?;
            assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));
            calls_of(&root).expect("rollback child-handler/0");
            let history = db.history().await;
            let kind = if total { "MissedAbsoluteDeadline" } else { "MissedRollbackDeadline" };
            for handler in ["child-handler", "root-handler"] {
                let failed = history.only("ROLLBACK_FAILED", handler);
                let failure = failed.exception.as_ref().expect("a failure");
                assert_eq!(
                    (&*failure.kind, &*failure.causes[0].kind),
                    ("GaveUpException", kind),
                    "{history}"
                );
            }
            assert_eq!(db.able_to_go_on().await, 0);
        }
        Ok(())
    }

    /// A rollback deadline that has passed before the rollback has no effect (W-08). Otherwise
    /// there would be no time to undo anything.
    #[tokio::test(flavor = "multi_thread")]
    async fn rollback_deadline_passed_before_the_rollback_has_no_effect() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        gate.open(1);
        let scoop = start(&db, &gate).await?;
        let root = scoop.launch(Fail { child: Compensation::Gate }).rollback_deadline(Duration::ZERO).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "rollback child-handler/0
            rollback root-handler/0",
        );
        Ok(())
    }

    /// The deadline of the forward path ends with that path.
    #[tokio::test(flavor = "multi_thread")]
    async fn forward_deadline_does_not_end_the_rollback() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = start(&db, &gate).await?;
        let root = scoop.launch(Fail { child: Compensation::Gate }).deadline(SOON * 2).await?;
        gate.arrivals(1).await;
        let passed = "SELECT (clock_timestamp() > max((context #>> '{HappyPathDeadlineKey,deadline}')::timestamptz))::int::bigint
            FROM scoop.message_event";
        crate::support::eventually("it has passed", async || db.number(passed).await == 1).await;
        gate.open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        Ok(())
    }
}

/// A time out of range is the step's own failure, by name.
mod times {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Child).deadline(Duration::MAX).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deadline_beyond_the_calendar_is_refused() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler,)).await?;
        let refused = scoop.launch(Root).delay(Duration::MAX).await;
        let Err(refused) = refused else { panic!("it was launched") };
        let expected = " is out of range (years 1 to 9999)";
        assert!(refused.is_invalid() && refused.to_string().ends_with(expected), "{refused}");
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("the step did not fail");
        };
        assert!(failure.message.contains("years 1 to 9999"), "{failure}");
        Ok(())
    }
}

/// A compensation that launches a message for its work.
mod compensations {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();
        rollback undo => launches(Child);

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.stop_signal().raised().await;
            Ok(())
        }
    }

    handler! {
        Undoer: "undoer" on Child;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            scope.check().await?;
            scope.launch(Grandchild).await?;
            Ok(())
        }

        step "1" one => done();
    }

    handler! {
        Helper: "helper" on Grandchild;
        step "0" zero => done();
    }

    /// The deadlines that led to the rollback are in the context of its messages, but no longer
    /// apply.
    #[tokio::test(flavor = "multi_thread")]
    async fn deadline_behind_a_rollback_does_not_end_messages_of_compensations() -> Result<()> {
        for total in [false, true] {
            let db = Database::new().await;
            let scoop = db.start((RootHandler, Undoer, Helper)).await?;
            let launch = scoop.launch(Root);
            let launch = if total { launch.total_deadline(SOON) } else { launch.deadline(SOON) };
            let root = launch.await?;
            assert!(matches!(root.ends().await?, Outcome::RolledBack(_)), "{}", root.tree().await?);
            calls_of(&root).expect(
                "invoke root-handler/0
                invoke root-handler/1
                rollback root-handler/0
                invoke undoer/0
                invoke helper/0
                invoke undoer/1",
            );
        }
        Ok(())
    }
}

mod of_a_rollback_whose_children_are_away {
    use super::*;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero => launches(Child);
        step "1" one => at_gate().then(fails(SIMULATED));
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn child_that_has_not_begun_its_rollback_is_not_waited_for() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let children = db.start((ChildHandler,)).await?;
        let pool = db.another_pool(6).await;
        let scoop = Scoop::builder().postgres(pool).only::<RootHandler>();
        let scoop = scoop.provide(RootHandler { gate: gate.clone() }).start().await?;
        let root = scoop.launch(Root).rollback_deadline(Duration::from_secs(2)).await?;
        gate.arrivals(1).await;
        children.shutdown().await?;
        gate.open(1);
        let Outcome::RollbackFailed(failure) = root.ends().await? else {
            panic!("the rollback was not given up");
        };
        assert!(failure.report().contains("missed the rollback deadline"), "{}", failure.report());
        let types = "SELECT type::text FROM scoop.message_event WHERE coroutine_name = 'child-handler'
                     ORDER BY created_at";
        assert_eq!(db.texts(types).await, ["SEEN", "SUSPENDED", "COMMITTED"]);
        Ok(())
    }
}
