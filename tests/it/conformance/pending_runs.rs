//! The runs that can continue (scenarios PQ).
//!
//! In the reference implementation a query over the whole history finds the candidate runs, their messages and
//! children, and selects the ready ones. Here the working set has these facts. So real runs make the history, and stop
//! where the scenario wants them; the tests look at the state in the working set.
//!
//! | ids | test |
//! | --- | --- |
//! | PQ-01 to -04, -09 to -11, -18 to -21, -27 to -29 (a run before, between and after its steps, and in its rollback, is resumed, and no other run is in the way) | `pq_01`: three runs of one saga that their process left in these states |
//! | PQ-05, -15, -24, -32 (rollback requested) | `im_08` |
//! | PQ-06 to -08 (at its end: never again) | `pq_06` |
//! | PQ-12, -13, -16 (emissions and rollback requests in the newest window) | `hp_01` to `hp_03`, `gt_05`: exactly these are waited for and undone |
//! | PQ-14, -17 (children in all states) | `pq_14` |
//! | PQ-22, -23, -25, -26, -31, -33, -34 (ready when all expected children have ended, and not before) | `pq_22` |
//! | PQ-30 (several runs, each for itself) | `im_17` |
//! | PQ-35, -36 (a parent waits for every rollback it requested) | `pq_35` |
//! | PQ-37, -38 (order: the longest ready first, rollbacks by the time of the request) | `pq_37` |
//! | PQ-39 (two workers, one run) | `me_03`, `me_08` |
//! | PQ-40, -41, -42 (failures of children) | `pq_14`; `rb_06` for the nesting |
//! | PQ-43, -44 (own failure, then the requested rollbacks of the children) | `rb_04`: the parent's own failure stays the cause |
//!
//! Predicates over hand-written rows without lineages or contexts do not exist here: no query reads the history to find
//! work.

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, compensated, invoked};

mod pq_01 {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
    enum Stop {
        First,
        Second,
        Compensation,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "task")]
    struct Task {
        stop: Stop,
    }

    handler! {
        Worker(gate): "worker" on Task;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            if task.stop == Stop::First {
                self.gate.pass().await;
            }
            Ok(())
        }

        rollback undo => at_gate();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            match task.stop {
                Stop::First => Ok(()),
                Stop::Second => {
                    self.gate.pass().await;
                    Ok(())
                }
                Stop::Compensation => Err(SIMULATED.into()),
            }
        }
    }

    /// The process dies with three runs in flight. Another one resumes all of them where they stood.
    #[tokio::test(flavor = "multi_thread")]
    async fn pq_01_to_pq_04_runs_in_every_state_are_resumed_where_they_stood() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let roots = crate::support::in_a_process_that_dies(&db, {
            let gate = gate.clone();
            move |builder: scoop::Builder| async move {
                let scoop = builder.only::<Worker>().provide(Worker { gate: gate.clone() }).start().await?;
                let stops = [Stop::First, Stop::Second, Stop::Compensation];
                let roots = scoop.launch_all(stops.map(|stop| Task { stop })).await?;
                gate.arrivals(3).await;
                Ok((scoop, roots.iter().map(scoop::Handle::id).collect::<Vec<_>>()))
            }
        })
        .await?;

        let scoop = db.start((Worker { gate: gate.clone() },)).await?;
        gate.open(3);
        let calls = [
            "invoke worker/0
            invoke worker/0
            invoke worker/1",
            "invoke worker/0
            invoke worker/1
            invoke worker/1",
            "invoke worker/0
            invoke worker/1
            rollback worker/0
            rollback worker/0",
        ];
        for (id, calls) in roots.into_iter().zip(calls) {
            let root = scoop.find(id).await?;
            root.ends().await?;
            calls_of(&root).expect(calls);
        }
        assert_eq!(db.history().await.count("SEEN"), 3);
        Ok(())
    }
}

mod pq_06 {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "task")]
    struct Task {
        step_fails: bool,
        compensation_fails: bool,
    }

    handler! {
        Worker: "worker" on Task;
        step "0" zero [rollback = undo] => done();

        async fn undo(&self, scope: &mut Scope<'_>, task: &Task, _: &Failure) -> Result<()> {
            compensated(scope);
            if task.compensation_fails { Err(SIMULATED.into()) } else { Ok(()) }
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            if task.step_fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pq_06_to_pq_08_a_run_that_has_ended_is_not_resumed() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Worker,)).await?;
        let tasks = [(false, false), (true, false), (true, true)];
        let tasks = tasks.map(|(step_fails, compensation_fails)| Task { step_fails, compensation_fails });
        let roots = scoop.launch_all(tasks).await?;
        assert_eq!(roots[0].ends().await?, Outcome::Committed);
        assert!(matches!(roots[1].ends().await?, Outcome::RolledBack(_)));
        assert!(matches!(roots[2].ends().await?, Outcome::RollbackFailed(_)));
        let before = db.history().await.rows().len();
        assert_eq!(db.able_to_go_on().await, 0, "nothing is left to be resumed");

        scoop.shutdown().await?;
        let again = Scoop::builder().postgres(db.another_pool(6).await).only::<Worker>().start().await?;
        let other = again.launch(Task { step_fails: false, compensation_fails: false }).await?;
        assert_eq!(other.ends().await?, Outcome::Committed);
        assert_eq!(db.history().await.rows().len(), before + 5);
        for (root, calls) in roots.iter().zip([2, 3, 3]) {
            assert_eq!(calls_of(root).count(), calls);
        }
        Ok(())
    }
}

/// A parent with two children, of two handlers each, that stop at a gate and end as planned.
mod four {
    use super::*;

    handler! {
        pub(super) RootHandler { notes: Notes }: "root-handler" on Root;
        step "0" zero [on_child_failure = note] => launches(Child).then(launches(Child2));

        async fn note(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            for child in scope.children().await? {
                let outcome = match child.outcome {
                    ChildOutcome::Committed => "committed",
                    ChildOutcome::RolledBack(_) => "rolled back",
                    ChildOutcome::RollbackFailed { .. } => "could not be undone",
                    _ => "else",
                };
                self.notes.add(format!("{} {outcome}", child.handler));
            }
            Err(Error::failure(failure.clone()))
        }
    }

    /// Three handlers that end as their names say.
    macro_rules! child {
        ($type:ident, $name:tt, $message:ident, $step:expr, $undo:expr) => {
            pub(super) struct $type {
                pub(super) gate: Gate,
            }

            #[saga(name = $name)]
            #[subscribes($message)]
            impl $type {
                #[step(name = "0", rollback = undo)]
                async fn zero(&self, _: &mut Scope<'_>, _: &$message) -> Result<()> {
                    self.gate.pass().await;
                    Ok(())
                }

                async fn undo(&self, _: &mut Scope<'_>, _: &$message, _: &Failure) -> Result<()> {
                    $undo
                }

                #[step(name = "1")]
                async fn one(&self, _: &mut Scope<'_>, _: &$message) -> Result<()> {
                    $step
                }
            }
        };
    }

    child!(C1, "child-handler-1", Child, Ok(()), Ok(()));
    child!(C2, "child-handler-2", Child, Ok(()), Ok(()));
    child!(C3, "child-handler-3", Child2, Err(RuntimeException("three").into()), Ok(()));
    child!(
        C4,
        "child-handler-4",
        Child2,
        Err(RuntimeException("four").into()),
        Err(IllegalStateException("undo four").into())
    );

    /// A program with all of them; each stops at its gate.
    pub(super) async fn start(db: &Database, notes: &Notes, gates: &[Gate; 4]) -> Result<Scoop> {
        let [c1, c2, c3, c4] = gates.clone();
        let scoop = db.scoop().only::<RootHandler>().provide(RootHandler { notes: notes.clone() });
        let scoop = scoop.only::<C1>().only::<C2>().only::<C3>().only::<C4>();
        let scoop = scoop.provide(C1 { gate: c1 }).provide(C2 { gate: c2 });
        Ok(scoop.provide(C3 { gate: c3 }).provide(C4 { gate: c4 }).start().await?)
    }
}

mod pq_14 {
    use super::four::*;
    use super::*;

    /// Three of four children end, with different outcomes, and the parent waits for the last. Then it gets the
    /// failures of all, and nothing else.
    #[tokio::test(flavor = "multi_thread")]
    async fn pq_14_pq_22_pq_42_a_parent_waits_for_all_its_children_and_learns_of_each() -> Result<()> {
        let db = Database::new().await;
        let (notes, gates) = (Notes::default(), <[Gate; 4]>::default());
        let scoop = start(&db, &notes, &gates).await?;
        let root = scoop.launch(Root).await?;
        for gate in &gates {
            gate.arrivals(1).await;
        }
        let ended = |tree: &Tree| {
            let states = tree.runs().into_iter().map(|run| run.state.clone());
            let ended = |state: &RunState| !matches!(state, RunState::Running | RunState::Waiting);
            states.filter(ended).count()
        };
        // One after another, so that the order of the failures is known.
        for (count, gate) in [2, 3, 0].into_iter().enumerate() {
            gates[gate].open(1);
            let tree = root.comes_to(|tree| ended(tree) == count + 1).await?;
            assert_eq!(tree.runs()[0].state, RunState::Waiting, "after {} children\n{tree}", count + 1);
        }
        gates[1].open(1);
        assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

        let expected = [
            "child-handler-1 committed",
            "child-handler-2 committed",
            "child-handler-3 rolled back",
            "child-handler-4 could not be undone",
        ];
        assert_eq!(notes.all()[..4], expected);
        let history = db.history().await;
        let failure = history.only("ROLLING_BACK", "root-handler").exception.clone().expect("a failure");
        assert_eq!(failure.kind, "ChildRollbackFailedException");
        let messages: Vec<_> = failure.root_causes().into_iter().map(|cause| &*cause.message).collect();
        assert_eq!(messages, ["three", "four", "undo four"]);
        Ok(())
    }
}

mod pq_35 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child).silently();
        rollback undo => done();
    }

    /// Two handlers of one topic with compensations that stop at a gate.
    macro_rules! child {
        ($type:ident, $name:tt) => {
            struct $type {
                gate: Gate,
            }

            #[saga(name = $name)]
            #[subscribes(Child)]
            impl $type {
                #[step(name = "0", rollback = undo)]
                async fn zero(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
                    Ok(())
                }

                async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
                    self.gate.pass().await;
                    compensated(scope);
                    Ok(())
                }
            }
        };
    }

    child!(C1, "child-handler-1");
    child!(C2, "child-handler-2");

    #[tokio::test(flavor = "multi_thread")]
    async fn pq_35_pq_36_parent_waits_for_all_requested_rollbacks() -> Result<()> {
        let db = Database::new().await;
        let gates = <[Gate; 2]>::default();
        let scoop = db.scoop().only::<RootHandler>().only::<C1>().only::<C2>();
        let scoop = scoop.provide(C1 { gate: gates[0].clone() }).provide(C2 { gate: gates[1].clone() });
        let scoop = scoop.start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::Accepted);
        for gate in &gates {
            gate.arrivals(1).await;
        }
        gates[0].open(1);
        root.comes_to(|tree| {
            let undone = |run: &&RunInfo| matches!(run.state, RunState::RolledBack(_));
            tree.runs().into_iter().filter(undone).count() == 1
        })
        .await?;
        assert_eq!(root.tree().await?.runs()[0].state, RunState::Waiting);
        gates[1].open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "rollback child-handler-1/0
            rollback child-handler-2/0
            rollback root-handler/0",
        );
        Ok(())
    }
}

mod pq_37 {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "task")]
    struct Task {
        name: String,
    }

    struct Worker {
        notes: Notes,
        gate: Gate,
    }

    #[saga(name = "worker")]
    #[subscribes(Task)]
    impl Worker {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, _: &mut Scope<'_>, task: &Task) -> Result<()> {
            self.notes.add(&*task.name);
            if task.name == "first" {
                self.gate.pass().await;
            }
            Ok(())
        }

        async fn undo(&self, _: &mut Scope<'_>, task: &Task, _: &Failure) -> Result<()> {
            self.notes.add(format!("undo {}", task.name));
            Ok(())
        }
    }

    /// The only slot is taken. Runs that become ready meanwhile are claimed in that order. A rollback is ready since
    /// its request.
    #[tokio::test(flavor = "multi_thread")]
    async fn pq_37_pq_38_longest_ready_run_is_claimed_first() -> Result<()> {
        let db = Database::new().await;
        let (notes, gate) = (Notes::default(), Gate::default());
        let scoop = db.scoop().only::<Worker>().concurrency(1);
        let scoop = scoop.provide(Worker { notes: notes.clone(), gate: gate.clone() }).start().await?;
        let task = |name: &str| Task { name: name.into() };
        let old = scoop.launch(task("old")).await?;
        assert_eq!(old.ends().await?, Outcome::Committed);
        let first = scoop.launch(task("first")).await?;
        gate.arrivals(1).await;
        let second = scoop.launch(task("second")).await?;
        assert_eq!(scoop.rollback(old.id(), "undo").await?, RollbackAnswer::Accepted);
        let third = scoop.launch(task("third")).await?;
        gate.open(1);
        for root in [first, second, old, third] {
            root.ends().await?;
        }
        assert_eq!(notes.all(), ["old", "first", "second", "undo old", "third"]);
        Ok(())
    }
}
