//! Consequences of the protocol, and the improvements of this implementation (scenarios IM).

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, compensated, invoked};

/// Registers a saga and stops its process.
macro_rules! list {
    ($db:expr, $saga:ty, $value:expr) => {
        $db.scoop().only::<$saga>().provide($value).start().await?.shutdown().await?
    };
}

mod im_02 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle_zero] => launches(Child);
        step "1" one => done();
        on_child_failure handle_zero => accepts();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => fails(SIMULATED);
    }

    /// Unlike in the reference, which calls the handler for ever, the failure is over (W-01).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_02_a_handler_that_returns_normally_ends_the_failure() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler 0 next=1 cfhi=0
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/0
            invoke child-handler/0
            hcf root-handler/0 cfhi=0 next=Continue
            invoke root-handler/1",
        );
        Ok(())
    }
}

/// A parent of two compensated steps, and a child whose process may be absent.
mod family {
    use super::*;

    handler! {
        pub(super) RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child);
        step "1" one [rollback = undo] => done();
        rollback undo => done();
    }

    handler! {
        pub(super) ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();
    }
}

mod im_03 {
    use super::family::*;
    use super::*;

    const UNDONE: &str = "M0 EMITTED · ·
        M0 SEEN root-handler ·
        M1 EMITTED root-handler 0
        M0 SUSPENDED root-handler 0 next=1
        M0 CANCELLATION_REQUESTED · ·
        M0 ROLLING_BACK root-handler 1 exc=GU@root-handler[=row 5]
        M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RBC(0[0,])
        M0 SUSPENDED root-handler RB(0[0,])
        M0 ROLLED_BACK root-handler RB(0[0,])";

    /// A pending delivery ends when its emitter gives up (W-06). It writes no rows, and no run waits for it.
    /// This holds whether the hierarchy or only the emitter is cancelled (W-44). In the reference the parent waits for
    /// ever.
    #[tokio::test(flavor = "multi_thread")]
    async fn im_03_w_06_w_44_pending_child_never_begins_after_its_parent_gave_up() -> Result<()> {
        for whole in [true, false] {
            let db = Database::new().await;
            list!(db, ChildHandler, ChildHandler);
            let scoop = db.start((RootHandler,)).await?;
            let root = scoop.launch(Root).await?;
            let waits = |tree: &Tree| tree.runs().len() == 2 && tree.runs()[0].state == RunState::Waiting;
            let tree = root.comes_to(waits).await?;
            assert_eq!(tree.runs()[1].state, RunState::Pending);
            let id = if whole { root.id().uuid() } else { tree.runs()[0].id().uuid() };
            assert_eq!(scoop.cancel(id, "changed my mind").await?, CancelAnswer::Accepted);
            assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
            db.history().await.expect(UNDONE);

            // Nor when its process comes back.
            let child = Scoop::builder().postgres(db.another_pool(5).await).only::<ChildHandler>();
            let _child = child.start().await?;
            assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);
            db.history().await.expect(UNDONE);
            calls_of(&root).expect(
                "invoke root-handler/0
                rollback root-handler/0",
            );
        }
        Ok(())
    }

    /// The same with a deadline (W-06).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_03_w_06_the_same_when_a_deadline_passes() -> Result<()> {
        let db = Database::new().await;
        list!(db, ChildHandler, ChildHandler);
        let scoop = db.start((RootHandler,)).await?;
        let root = scoop.launch(Root).deadline(Duration::from_secs(1)).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        let history = db.history().await;
        let deadline = json!({"HappyPathDeadlineKey": {"deadline": "…", "source": "client", "trace": []}});
        history.expect_with(
            &[("D", deadline)],
            "M0 EMITTED · · ctx=D
            M0 SEEN root-handler · ctx=D
            M1 EMITTED root-handler 0 ctx=D
            M0 SUSPENDED root-handler 0 next=1 ctx=D
            M0 ROLLING_BACK root-handler 1 ctx=D exc=GU@root-handler[MissedHappyPathDeadline]
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) ctx=D
            M0 SUSPENDED root-handler RBC(0[0,]) ctx=D
            M0 SUSPENDED root-handler RB(0[0,]) ctx=D
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=D",
        );
        assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await, 0);
        Ok(())
    }
}

mod im_07 {
    use super::family::*;
    use super::*;

    /// Requests are answered with their effect, unlike in the reference. An unknown id is the caller's error (W-11 to
    /// W-15).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_07_requests_are_idempotent_and_may_be_void() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        // A cancellation after the end is recorded, and has no effect.
        assert_eq!(run.scoop.cancel(run.root.id(), "late").await?, CancelAnswer::NothingToDo);
        assert_eq!(run.scoop.cancel(run.root.id(), "later").await?, CancelAnswer::AlreadyRequested);
        assert_eq!(run.root.ends().await?, Outcome::Committed);
        assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::Accepted);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::AlreadyRolledBack);

        // The id of a message is not the id of a run. An unknown id is neither.
        let named = format!("{} is ", run.root.message_id());
        let message = run.scoop.cancel(run.root.message_id(), "who?").await.unwrap_err();
        assert!(message.wrong_id().is_some() && message.to_string().starts_with(&named), "{message:?}");
        let message = run.scoop.rollback(run.root.message_id(), "who?").await.unwrap_err();
        assert!(message.wrong_id().is_some(), "{message:?}");
        let unknown = Uuid::new_v4();
        let named = format!("there is no hierarchy and no run {unknown};");
        let absent = run.scoop.cancel(unknown, "who?").await.unwrap_err();
        assert!(absent.is_not_found() && absent.to_string().starts_with(&named), "{absent:?}");
        let absent = run.scoop.rollback(unknown, "who?").await.unwrap_err();
        assert!(absent.is_not_found() && absent.to_string().starts_with(&named), "{absent:?}");

        run.history().await.expect(
            r#"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0
            M1 COMMITTED child-handler 0
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1
            M0 CANCELLATION_REQUESTED · · L=[R] exc=CR(late)@"scoop"
            M0 ROLLBACK_EMITTED · · L=[R] exc=RR(undo)@"scoop"
            M0 ROLLING_BACK root-handler · L=[R,a] exc==row 11
            M0 SUSPENDED root-handler RBC(1[0,])
            M0 SUSPENDED root-handler RB(1[0,])
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 11]
            M0 SUSPENDED root-handler RBC(0[0,])
            M1 ROLLING_BACK child-handler · exc==row 15
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 SUSPENDED child-handler RB(0[0,])
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])"#,
        );
        Ok(())
    }
}

mod im_08 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.set(Answer { value: 42 })?;
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.set(Answer { value: 43 })?;
            scope.launch(Child2).await?;
            Ok(())
        }

        step "2" two => fails(SIMULATED);
    }

    #[derive(ContextKey, Serialize, Deserialize)]
    struct Answer {
        value: u32,
    }

    use super::family::ChildHandler;

    handler! {
        Pause(gate): "pause" on Child2;
        step "0" zero => at_gate();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn im_08_a_run_is_frozen_between_rollback_emitted_and_rolling_back() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((RootHandler, Pause { gate: gate.clone() })).await?;
        let child =
            async || Scoop::builder().postgres(db.another_pool(5).await).only::<ChildHandler>().start().await;
        let away = child().await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        away.shutdown().await?;
        gate.open(1);

        // The rollback is requested, but the child's process is absent: the child has recorded nothing.
        let has_waiting_run = |tree: &Tree| tree.runs().iter().any(|run| run.state == RunState::Waiting);
        crate::support::eventually("the child's rollback is requested", async || {
            db.number("SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLBACK_EMITTED'").await == 2
        })
        .await;
        root.comes_to(has_waiting_run).await?;
        db.history().await.of(&["child-handler"]).about(&["M1"]).expect_with(
            &[("A42", json!({"Answer": {"value": 42}}))],
            "M1 SEEN child-handler · ctx=A42
            M1 SUSPENDED child-handler 0 ctx=A42
            M1 COMMITTED child-handler 0 ctx=A42",
        );

        let _back = child().await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        db.history().await.about(&["M1"]).expect_with(
            &[("A42", json!({"Answer": {"value": 42}})), ("A43", json!({"Answer": {"value": 43}}))],
            "M1 EMITTED root-handler 0 ctx=A42
            M1 SEEN child-handler · ctx=A42
            M1 SUSPENDED child-handler 0 ctx=A42
            M1 COMMITTED child-handler 0 ctx=A42
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) ctx=A43
            M1 ROLLING_BACK child-handler · ctx=A43 exc==row 5
            M1 SUSPENDED child-handler RBC(0[0,]) ctx=A43
            M1 SUSPENDED child-handler RB(0[0,]) ctx=A43
            M1 ROLLED_BACK child-handler RB(0[0,]) ctx=A43",
        );
        Ok(())
    }
}

mod im_09 {
    use super::family::RootHandler;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn im_09_message_without_handlers_is_not_waited_for() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;
        assert_eq!(run.scoop.rollback(run.root.id(), "undo").await?, RollbackAnswer::Accepted);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1
            M0 ROLLBACK_EMITTED · ·
            M0 ROLLING_BACK root-handler · exc==row 7
            M0 SUSPENDED root-handler RBC(1[0,])
            M0 SUSPENDED root-handler RB(1[0,])
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 7]
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        Ok(())
    }
}

mod im_10 {
    use super::family::ChildHandler;
    use super::*;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero => launches(Child);
        step "1" one => at_gate().then(launches(Child));
    }

    /// The recipients of a message are fixed at its emission (W-19). In the reference they depend on when a handler
    /// looks. A later handler gets later emissions. It gets neither earlier ones, nor what was launched from outside
    /// before.
    #[tokio::test(flavor = "multi_thread")]
    async fn im_10_w_19_late_handler_gets_only_later_emissions() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;
        let unheard = scoop.launch(Child).await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        let late = Scoop::builder().postgres(db.another_pool(5).await).only::<ChildHandler>();
        let _late = late.start().await?;
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(unheard.ends().await?, Outcome::NoHandlers);

        let history = db.history().await;
        history.about(&["M0"]).expect("M0 EMITTED · ·");
        history.about(&["M2"]).expect("M2 EMITTED root-handler 0");
        history.about(&["M3"]).expect(
            "M3 EMITTED root-handler 1
            M3 SEEN child-handler ·
            M3 SUSPENDED child-handler 0
            M3 COMMITTED child-handler 0",
        );
        Ok(())
    }
}

mod im_14 {
    use super::*;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero [rollback = undo_zero] => done();
        rollback undo_zero => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.stop_signal().raised().await;
            self.gate.pass().await;
            Ok(())
        }
    }

    /// Unlike in the reference, which then undoes nothing, the rollback runs (W-08).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_14_w_08_an_absolute_deadline_missed_on_the_happy_path_is_followed_by_the_rollback()
    -> Result<()> {
        let gate = Gate::default();
        gate.open(1);
        let db = Database::new().await;
        let scoop = db.start((RootHandler { gate },)).await?;
        let root = scoop.launch(Root).total_deadline(Duration::from_secs(1)).source("me").await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        let deadline = json!({"AbsoluteDeadlineKey": {"deadline": "…", "source": "me", "trace": []}});
        db.history().await.expect_with(
            &[("D", deadline)],
            "M0 EMITTED · · ctx=D
            M0 SEEN root-handler · ctx=D
            M0 SUSPENDED root-handler 0 next=1 ctx=D
            M0 ROLLING_BACK root-handler 1 ctx=D exc=GU@root-handler[MissedAbsoluteDeadline]
            M0 SUSPENDED root-handler RBC(0[0,]) ctx=D
            M0 SUSPENDED root-handler RB(0[0,]) ctx=D
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=D",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        Ok(())
    }
}

mod im_15 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo_slowly] => done();

        async fn undo_slowly(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            scope.stop_signal().raised().await;
            Ok(())
        }

        rollback undo => done();
        step "2" two => fails(SIMULATED).silently();
    }

    /// The deadline under the name by which the reference looks for it, but never writes it.
    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "RollbackDeadlineKey")]
    struct Misspelt {
        deadline: String,
        source: String,
    }

    /// Rollback deadlines work under either name, unlike in the reference (W-07). The part that the deadline
    /// interrupted is not recorded: its effects are gone.
    #[tokio::test(flavor = "multi_thread")]
    async fn im_15_w_07_rollback_deadline_missed_during_the_rollback_ends_the_rollback() -> Result<()> {
        for misspelt in [false, true] {
            let db = Database::new().await;
            let scoop = db.start((RootHandler,)).await?;
            let root = match misspelt {
                false => {
                    scoop.launch(Root).rollback_deadline(Duration::from_millis(1_500)).source("me").await?
                }
                true => {
                    let sql = "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1500 ms', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
                    let deadline = db.texts(sql).await.remove(0);
                    scoop.launch(Root).with(Misspelt { deadline, source: "me".into() }).await?
                }
            };
            assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

            let deadline = match misspelt {
                false => json!({"RollbackPathDeadlineKey": {"deadline": "…", "source": "me", "trace": []}}),
                true => json!({"RollbackDeadlineKey": {"deadline": "…", "source": "me"}}),
            };
            db.history().await.expect_with(
                &[("D", deadline)],
                "M0 EMITTED · · ctx=D
                M0 SEEN root-handler · ctx=D
                M0 SUSPENDED root-handler 0 next=1 ctx=D
                M0 SUSPENDED root-handler 1 next=2 ctx=D
                M0 ROLLING_BACK root-handler 2 ctx=D
                M0 SUSPENDED root-handler RBC(1[0,]) ctx=D
                M0 ROLLBACK_FAILED root-handler RB(1[0,]) ctx=D exc=GU@root-handler[MissedRollbackDeadline]",
            );
            calls_of(&root).expect(
                "invoke root-handler/0
                invoke root-handler/1
                rollback root-handler/1",
            );
        }
        Ok(())
    }
}

mod im_16 {
    use super::*;

    #[derive(Clone, Copy, Message, Serialize, Deserialize)]
    #[message(topic = "nap")]
    struct Nap {
        millis: u64,
    }

    struct Sleeper {
        notes: Notes,
        gate: Gate,
    }

    #[saga(name = "sleeper")]
    #[subscribes(Nap)]
    impl Sleeper {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, nap: &Nap) -> Result<()> {
            scope.sleep(Duration::from_millis(nap.millis)).await?;
            self.gate.pass().await;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, _: &mut Scope<'_>, nap: &Nap) -> Result<()> {
            self.notes.add(nap.millis.to_string());
            Ok(())
        }
    }

    /// A run that sleeps longer is not woken with one that sleeps less, unlike in the reference (W-04).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_16_w_04_of_two_sleepers_each_wakes_in_its_own_time() -> Result<()> {
        let db = Database::new().await;
        let (notes, gate) = (Notes::default(), Gate::default());
        let scoop = db.start((Sleeper { notes: notes.clone(), gate: gate.clone() },)).await?;
        let long = scoop.launch(Nap { millis: 3_600_000 }).await?;
        gate.arrivals(1).await;
        gate.open(1);
        long.comes_to(|tree| tree.runs()[0].state == RunState::Sleeping).await?;
        let short = scoop.launch(Nap { millis: 50 }).await?;
        gate.open(1);
        assert_eq!(short.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["50"]);
        assert_eq!(long.tree().await?.runs()[0].state, RunState::Sleeping);
        Ok(())
    }
}

mod im_17 {
    use super::*;

    /// Which child the run waits for.
    #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
    enum Wants {
        Offline,
        Online,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "want")]
    struct Want {
        wants: Wants,
    }

    handler! {
        Parent: "parent" on Want;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, want: &Want) -> Result<()> {
            invoked(scope);
            match want.wants {
                Wants::Offline => scope.launch(Child).await?,
                Wants::Online => scope.launch(Child2).await?,
            };
            Ok(())
        }

        step "1" one => done();
    }

    use super::family::ChildHandler as Offline;

    handler! {
        Online: "online" on Child2;
        step "0" zero => done().silently();
    }

    /// Unlike in the reference, each run is judged for itself (W-02, W-03).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_17_w_02_w_03_two_runs_of_one_saga_do_not_concern_each_other() -> Result<()> {
        let db = Database::new().await;
        list!(db, Offline, Offline);
        let scoop = db.start((Parent, Online)).await?;
        let waits = |tree: &Tree| tree.runs().len() == 2 && tree.runs()[0].state == RunState::Waiting;

        // A run whose child has not started does not block others.
        let x = scoop.launch(Want { wants: Wants::Offline }).await?;
        x.comes_to(waits).await?;
        let y = scoop.launch(Want { wants: Wants::Online }).await?;
        assert_eq!(y.ends().await?, Outcome::Committed);

        // A cancelled run does not make the others continue without their children.
        let z = scoop.launch(Want { wants: Wants::Offline }).await?;
        z.comes_to(waits).await?;
        scoop.cancel(x.id(), "enough").await?;
        assert!(matches!(x.ends().await?, Outcome::RolledBack(_)));
        assert!(waits(&z.tree().await?));
        calls_of(&z).expect("invoke parent/0");
        Ok(())
    }
}

mod im_18 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "0", on_child_failure = handle)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            scope.launch(Child).await?;
            Ok(if before < 2 { Next::Repeat } else { Next::Continue })
        }

        on_child_failure handle => accepts();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => fails(SIMULATED).silently();
    }

    /// Unlike in the reference, which counts for the step that would run next, the handler gets the
    /// iteration of the step that emitted (W-39); each iteration's failures are counted anew (W-01).
    #[tokio::test(flavor = "multi_thread")]
    async fn im_18_w_38_w_39_the_handler_gets_the_iteration_of_the_step_that_emitted() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;
        run.calls().expect(
            "invoke root-handler/0 it=0
            hcf root-handler/0 it=0 cfhi=0
            invoke root-handler/0 it=1
            hcf root-handler/0 it=1 cfhi=0
            invoke root-handler/0 it=2
            hcf root-handler/0 it=2 cfhi=0",
        );
        Ok(())
    }
}

mod im_19 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child).then(launches(Child2));
    }

    handler! {
        First(gate): "first" on Child;
        step "0" zero => at_gate().then(fails(RuntimeException("first")));
    }

    handler! {
        Second: "second" on Child2;
        step "0" zero => fails(RuntimeException("second"));
    }

    /// The order of the causes is fixed, unlike in the reference. It is the order in which the children began to roll
    /// back (W-51), not that of their launches.
    #[tokio::test(flavor = "multi_thread")]
    async fn im_19_w_51_failures_of_two_children_are_combined_in_order() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((RootHandler, First { gate: gate.clone() }, Second), Root).await?;
        gate.arrivals(1).await;
        let failed = |run: &RunInfo| matches!(run.state, RunState::RolledBack(_));
        run.root.comes_to(|tree| tree.runs().iter().any(|run| failed(run))).await?;
        gate.open(1);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));

        run.history().await.of(&["root-handler"]).about(&["M0"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0
            M0 ROLLING_BACK root-handler 0 cfhi=0 exc=CRB(0)@root-handler[RTE(second)@second,RTE(first)@first]
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        Ok(())
    }
}

mod im_20 {
    use super::*;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.set(Mark {})?;
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            self.gate.pass().await;
            Ok(())
        }
    }

    #[derive(ContextKey, Serialize, Deserialize)]
    struct Mark {}

    /// W-18 as well: a restart strands nothing.
    #[tokio::test(flavor = "multi_thread")]
    async fn im_20_w_18_an_interrupted_step_leaves_no_trace_and_runs_again() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let gate = Gate::default();
        let root = crate::support::in_a_process_that_dies(&db, {
            let gate = gate.clone();
            move |builder: scoop::Builder| async move {
                let scoop = builder.only::<RootHandler>().provide(RootHandler { gate: gate.clone() });
                let scoop = scoop.start().await?;
                let root = scoop.launch(Root).await?.id();
                gate.arrivals(1).await;
                Ok((scoop, root))
            }
        })
        .await?;

        let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;
        gate.open(1);
        let root = scoop.find(root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        db.history().await.expect_with(
            &[("M", json!({"Mark": {}}))],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M0 SUSPENDED root-handler 1 ctx=M
            M0 COMMITTED root-handler 1 ctx=M",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke root-handler/1",
        );
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        Ok(())
    }
}
