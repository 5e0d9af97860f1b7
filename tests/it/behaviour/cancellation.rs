//! Cancellation of runs in every state, and runs that cannot be cancelled.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, compensated, eventually, handled, invoked};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

mod of_a_part {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle] => launches(Child).then(launches(Child2));

        async fn handle(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            handled(scope);
            assert_eq!(failure.root_causes()[0].message, "enough");
            Ok(())
        }

        step "1" one => done();
    }

    handler! {
        Sleepy(gate): "sleepy" on Child;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            scope.sleep(NEVER).await
        }

        rollback undo => done();
        step "1" one => at_gate().silently();
    }

    handler! {
        Sibling(gate): "sibling" on Child2;
        step "0" zero => at_gate().silently();
    }

    /// A part of a hierarchy that sleeps gives up at once; its sibling does not learn of it, and its
    /// parent handles the failure like any other.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_sleeping_part_gives_up_at_once_and_the_rest_goes_on() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.scoop().only::<RootHandler>().only::<Sleepy>().only::<Sibling>();
        let scoop = scoop.provide(Sleepy { gate: gate.clone() }).provide(Sibling { gate: gate.clone() });
        let scoop = scoop.poll_interval(NEVER).start().await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        let sleeps = |run: &&&RunInfo| run.handler == "sleepy" && run.state == RunState::Sleeping;
        let tree = root.comes_to(|tree| tree.runs().iter().any(|run| sleeps(&run))).await?;
        let part = tree.runs().iter().find(sleeps).expect("it sleeps").lineage.id();
        assert_eq!(scoop.cancel(part, "enough").await?, CancelAnswer::Accepted);
        let undone = |run: &&RunInfo| run.handler == "sleepy" && matches!(run.state, RunState::RolledBack(_));
        root.comes_to(|tree| tree.runs().into_iter().any(|run| undone(&run))).await?;
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke sleepy/0
            rollback sleepy/0
            hcf root-handler/0
            invoke root-handler/1",
        );
        db.history().await.of(&["sleepy"]).about(&["M1"]).expect(
            r#"M1 SEEN sleepy ·
            M1 SUSPENDED sleepy 0 next=1 wait
            M1 CANCELLATION_REQUESTED · · L=[R,a,b] exc=CR(enough)@"scoop"
            M1 ROLLING_BACK sleepy 1 exc=GU@sleepy[=row 3]
            M1 SUSPENDED sleepy RBC(0[0,])
            M1 SUSPENDED sleepy RB(0[0,])
            M1 ROLLED_BACK sleepy RB(0[0,])"#,
        );
        Ok(())
    }

    /// A pending run also has an id in the tree.
    #[tokio::test(flavor = "multi_thread")]
    async fn pending_part_can_be_cancelled() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        db.start((Sleepy { gate: gate.clone() },)).await?.shutdown().await?;
        gate.open(1);
        let scoop = db.start((RootHandler, Sibling { gate: gate.clone() })).await?;
        let root = scoop.launch(Root).await?;
        let pending = |run: &&&RunInfo| run.handler == "sleepy" && run.state == RunState::Pending;
        let tree = root.comes_to(|tree| tree.runs().iter().any(|run| pending(&run))).await?;
        let part = tree.runs().iter().find(pending).expect("it is pending").lineage.id();
        assert_eq!(scoop.cancel(part, "enough").await?, CancelAnswer::Accepted);
        let back = Scoop::builder().postgres(db.another_pool(5).await).only::<Sleepy>();
        let _back = back.provide(Sleepy { gate }).start().await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        calls_of(&root).expect(
            "invoke root-handler/0
            hcf root-handler/0
            invoke root-handler/1",
        );
        Ok(())
    }
}

mod of_a_running_step {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
    enum How {
        Signal,
        Check,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Work {
        how: How,
    }

    struct Worker {
        gate: Gate,
    }

    #[saga(name = "worker")]
    #[subscribes(Work)]
    impl Worker {
        #[step(name = "0", retry(max = 5))]
        async fn zero(&self, scope: &mut Scope<'_>, work: &Work) -> Result<()> {
            invoked(scope);
            scope.check().await?;
            let stop = scope.stop_signal();
            assert!(!stop.is_raised());
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            self.gate.pass().await;
            match work.how {
                How::Signal => {
                    stop.raised().await;
                    assert!(scope.stop_signal().is_raised());
                }
                How::Check => {}
            }
            scope.check().await?;
            unreachable!("it was to give up");
        }
    }

    /// Another process signals by a notification. A step that checks the signal may stop in the middle, and is not
    /// retried.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_looks_stops_in_the_middle() -> Result<()> {
        for how in [How::Signal, How::Check] {
            let db = Database::new().await;
            db.execute("CREATE TABLE effect (n int)").await;
            let gate = Gate::default();
            let scoop = db.scoop().only::<Worker>().provide(Worker { gate: gate.clone() });
            let scoop = scoop.poll_interval(NEVER).start().await?;
            let root = scoop.launch(Work { how }).await?;
            gate.arrivals(1).await;
            let client = Scoop::builder().postgres(db.another_pool(2).await).client().await?;
            let answer = client.cancel(root.id(), "en\0ough").source("sup\0port").await?;
            assert_eq!(answer, CancelAnswer::Accepted);
            gate.open(1);
            assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
            db.history().await.expect(
                r#"M0 EMITTED · ·
                M0 SEEN worker ·
                M0 CANCELLATION_REQUESTED · · L=[R] exc=CR(enough)@"support"
                M0 ROLLING_BACK worker 0 exc=GU@worker[=row 3]
                M0 ROLLED_BACK worker RB(0[0,])"#,
            );
            calls_of(&root).expect("invoke worker/0");
            assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        }
        Ok(())
    }
}

mod of_a_rollback {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            assert!(!scope.stop_signal().is_raised());
            scope.check().await?;
            scope.launch(Child).await?;
            Ok(())
        }

        step "1" one => fails(SIMULATED);
    }

    handler! {
        /// Handles the message of a compensation: two steps, and a message of its own.
        Undoer(gate): "undoer" on Child;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            self.gate.pass().await;
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

    /// W-45: neither a rollback nor the messages of its compensations are cancelled, be they running or launched later.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_45_rollback_and_its_messages_are_not_cancelled() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((RootHandler, Undoer { gate: gate.clone() }, Helper), Root).await?;
        gate.arrivals(1).await;
        let tried = run.scoop.cancel(run.root.id(), "too late").dry_run().await?;
        assert_eq!(tried, CancelAnswer::NothingToDo);
        assert!(run.root.tree().await?.cancellations().is_empty(), "a dry run is not recorded");
        assert_eq!(run.scoop.cancel(run.root.id(), "too late").await?, CancelAnswer::NothingToDo);
        gate.open(1);
        let Outcome::RolledBack(failure) = run.root.ends().await? else {
            panic!("{}", run.root.tree().await?);
        };
        assert_eq!(failure.message, SIMULATED.0);
        run.calls().expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0
            invoke undoer/0
            invoke helper/0
            invoke undoer/1",
        );
        Ok(())
    }
}

mod of_what_nobody_runs {
    use super::*;

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add("begun");
            Ok(())
        }
    }

    /// The request waits with the message for a process; the step is never entered.
    #[tokio::test(flavor = "multi_thread")]
    async fn message_cancelled_before_its_claim_is_never_begun() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let start = async || {
            let scoop = db.scoop().only::<RootHandler>().provide(RootHandler { notes: notes.clone() });
            scoop.start().await
        };
        start().await?.shutdown().await?;
        let client = db.scoop().client().await?;
        let roots = [client.launch(Root).await?, client.launch(Root).delay(NEVER).await?];
        for root in &roots {
            assert_eq!(client.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
            assert_eq!(client.cancel(root.id(), "again").await?, CancelAnswer::AlreadyRequested);
        }
        let _scoop = start().await?;
        for root in &roots {
            assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        }
        assert_eq!(notes.all(), [""; 0]);
        Ok(())
    }
}

/// Cancelling many hierarchies at any moment of their lives.
mod races {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "branch")]
    struct Branch {
        tree: u32,
        depth: u32,
    }

    #[derive(Default)]
    struct Brancher;

    async fn book(scope: &mut Scope<'_>, tree: u32, amount: i32) -> Result<()> {
        let sql = "INSERT INTO effect VALUES ($1, $2)";
        sqlx::query(sql).bind(i64::from(tree)).bind(amount).execute(scope.tx().await?).await?;
        Ok(())
    }

    #[saga(name = "brancher")]
    #[subscribes(Branch)]
    impl Brancher {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, branch: &Branch) -> Result<()> {
            book(scope, branch.tree, 1).await?;
            if branch.depth > 0 {
                for _ in 0..3 {
                    scope.launch(Branch { tree: branch.tree, depth: branch.depth - 1 }).await?;
                }
            }
            Ok(())
        }

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, branch: &Branch) -> Result<()> {
            book(scope, branch.tree, 1).await
        }

        async fn undo(&self, scope: &mut Scope<'_>, branch: &Branch, _: &Failure) -> Result<()> {
            book(scope, branch.tree, -1).await
        }
    }

    /// At any moment, a hierarchy is done or undone as a whole. Nothing is left over, and no client waits for ever.
    /// Deadlines take the same path as requests.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_hierarchy_that_is_cancelled_at_any_moment_is_done_or_undone() -> Result<()> {
        const TREES: u32 = 40;
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (tree bigint, amount int)").await;
        let scoop = db.start((Brancher,)).await?;
        let other = Scoop::builder().postgres(db.another_pool(6).await).only::<Brancher>().start().await?;
        let mut roots = vec![];
        for tree in 0..TREES {
            let launch = scoop.launch(Branch { tree, depth: 2 });
            let root = match tree % 4 {
                0 => launch.deadline(Duration::from_millis(u64::from(tree) * 3)).await?,
                _ => launch.await?,
            };
            let canceller = if tree % 2 == 0 { scoop.clone() } else { other.clone() };
            let id = root.id();
            let request = tokio::spawn(async move {
                if tree % 4 == 0 {
                    return Ok(CancelAnswer::NothingToDo);
                }
                tokio::time::sleep(Duration::from_millis(u64::from(tree % 13) * 8)).await;
                canceller.cancel(id, "enough").await
            });
            roots.push((tree, root, request));
        }
        let mut undone = 0;
        for (tree, root, request) in roots {
            request.await??;
            let sum = format!("SELECT coalesce(sum(amount), 0)::bigint FROM effect WHERE tree = {tree}");
            match root.ends().await? {
                Outcome::Committed => {
                    assert_eq!(db.number(&sum).await, 2 * (1 + 3 + 9), "{}", root.tree().await?)
                }
                Outcome::RolledBack(_) => {
                    undone += 1;
                    assert_eq!(db.number(&sum).await, 0, "{}", root.tree().await?);
                }
                other => panic!("{other:?}\n{}", root.tree().await?),
            }
        }
        assert!(undone > 0, "some were cancelled in time");
        eventually("nothing is left", async || {
            db.number("SELECT count(*) FROM scoop.run WHERE handler <> 'none'").await == 0
        })
        .await;
        // Reading the history checks that there is one SEEN and one end for each handler and message (I3).
        db.history().await;
        Ok(())
    }
}

/// The requesting, the waiting and the executing process may differ, and may end.
mod processes {
    use super::*;
    use crate::support::in_a_process_that_dies;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child);
        rollback undo => done();
    }

    struct ChildHandler {
        gate: Gate,
    }

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            let stop = scope.stop_signal();
            self.gate.pass().await;
            stop.raised().await;
            scope.check().await
        }
    }

    /// With polling switched off all processes learn of the request by notifications, the executing one included.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_reaches_other_processes_at_once() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        gate.open(1);
        let parents = db.scoop().only::<RootHandler>().poll_interval(NEVER).start().await?;
        let children = Scoop::builder().postgres(db.another_pool(5).await).only::<ChildHandler>();
        let children = children.provide(ChildHandler { gate: gate.clone() }).poll_interval(NEVER);
        let _children = children.start().await?;
        let root = parents.launch(Root).await?;
        gate.arrivals(1).await;
        assert_eq!(parents.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            rollback root-handler/0",
        );
        Ok(())
    }

    /// The step does not run again: the next owner finds that the run is to give up.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_outlives_the_process_that_was_to_obey() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let root = in_a_process_that_dies(&db, {
            let gate = gate.clone();
            move |builder: scoop::Builder| async move {
                let scoop = builder.only::<RootHandler>().only::<ChildHandler>();
                let scoop = scoop.provide(ChildHandler { gate: gate.clone() }).start().await?;
                let root = scoop.launch(Root).await?;
                gate.arrivals(1).await;
                assert_eq!(scoop.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
                Ok((scoop, root.id()))
            }
        })
        .await?;
        let scoop = db.start((RootHandler, ChildHandler { gate })).await?;
        let root = scoop.find(root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            rollback root-handler/0",
        );
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn concurrent_requests_are_recorded_once() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((RootHandler, ChildHandler { gate: gate.clone() }), Root).await?;
        gate.arrivals(1).await;
        let mut requests = tokio::task::JoinSet::new();
        for n in 0..10 {
            let (scoop, id) = (run.scoop.clone(), run.root.id());
            requests.spawn(async move { scoop.cancel(id, format!("request {n}")).await });
        }
        let answers: Vec<_> = requests.join_all().await.into_iter().collect::<Result<_, _>>()?;
        let accepted = answers.iter().filter(|answer| **answer == CancelAnswer::Accepted).count();
        let others = answers.iter().filter(|answer| **answer == CancelAnswer::AlreadyRequested).count();
        assert_eq!((accepted, others), (1, 9), "{answers:?}");
        gate.open(1);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(run.history().await.count("CANCELLATION_REQUESTED"), 1);
        Ok(())
    }
}

mod of_one_that_launches {
    use super::*;

    handler! {
        Parent(gate): "parent" on Root;
        step "0" zero => at_gate();
    }

    /// Changes between the snapshot of the request and its lock on the parent. The parent, which another session has
    /// locked, launches a child that runs, and misses a deadline.
    const LAUNCHES_AND_IS_LATE: [&str; 2] = [
        "INSERT INTO scoop.run
             (root, id, parent, lineage, message_id, topic, handler, state, owner, epoch, last_event_at)
         SELECT root, child, id, lineage || child, child, 'nowhere', 'child', 'running', child, 1, last_event_at
         FROM (SELECT *, gen_random_uuid() AS child FROM scoop.run WHERE handler = 'parent') parent",
        "UPDATE scoop.run SET giving_up = true WHERE handler = 'parent'",
    ];

    /// The request marks none of the runs in its snapshot, since a deadline has. But the child is newer.
    #[tokio::test(flavor = "multi_thread")]
    async fn child_launched_meanwhile_gives_up_after_an_earlier_deadline() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((Parent { gate: gate.clone() },), Root).await?;
        gate.arrivals(1).await;
        let mut tx = run.db.pool().begin().await?;
        sqlx::query("SELECT FROM scoop.run WHERE handler = 'parent' FOR UPDATE").execute(&mut *tx).await?;
        let request = tokio::spawn(run.scoop.cancel(run.root.id(), "enough").into_future());
        let held_up = "SELECT count(*) FROM pg_stat_activity
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        eventually("the request is held up", async || run.db.number(held_up).await > 0).await;
        for statement in LAUNCHES_AND_IS_LATE {
            sqlx::query(statement).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        assert_eq!(request.await.expect("it is made")?, CancelAnswer::Accepted);
        let asked = "SELECT count(*) FROM scoop.run WHERE handler = 'child' AND giving_up";
        assert_eq!(run.db.number(asked).await, 1);
        gate.open(1);
        Ok(())
    }
}
