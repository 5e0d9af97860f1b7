//! Deviations from the reference implementation that no other file tests. The numbers `W-nn` are those of the table in
//! `docs/reference/conformance.md`, which names the tests of all deviations.

use std::time::Duration;

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, handled, invoked};

mod w_05 {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Task {
        child_fails: bool,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "child-topic")]
    struct Part {
        fails: bool,
    }

    handler! {
        RootHandler(gate): "root-handler" on Task;
        #[step(name = "0", rollback = undo, on_child_failure = ignore)]
        async fn zero(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            scope.launch(Part { fails: task.child_fails }).await?;
            Ok(())
        }

        async fn ignore(&self, scope: &mut Scope<'_>, _: &Task, _: &Failure) -> Result<()> {
            handled(scope);
            // Unfinished, with a child that could not be undone.
            self.gate.pass().await;
            Ok(())
        }

        rollback undo => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            if task.child_fails { Ok(()) } else { Err(SIMULATED.into()) }
        }
    }

    handler! {
        ChildHandler: "child-handler" on Part;
        step "0" zero [rollback = undo] => done().silently();

        async fn undo(&self, _: &mut Scope<'_>, part: &Part, _: &Failure) -> Result<()> {
            if part.fails { Err(IllegalStateException("it cannot be undone").into()) } else { Ok(()) }
        }

        #[step(name = "1")]
        async fn one(&self, _: &mut Scope<'_>, part: &Part) -> Result<()> {
            if part.fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn w_05_failed_rollback_below_one_run_does_not_affect_another() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.start((RootHandler { gate: gate.clone() }, ChildHandler)).await?;
        let unlucky = scoop.launch(Task { child_fails: true }).await?;
        gate.arrivals(1).await;
        let other = scoop.launch(Task { child_fails: false }).await?;
        let Outcome::RolledBack(failure) = other.ends().await? else {
            panic!("{}", other.tree().await?);
        };
        assert_eq!((&*failure.message, failure.causes.len()), (SIMULATED.0, 0));
        calls_of(&other).expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        gate.open(1);
        assert_eq!(unlucky.ends().await?, Outcome::Committed);
        Ok(())
    }
}

mod w_10 {
    use super::*;

    /// The deadline, as any other element of the context.
    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "HappyPathDeadlineKey")]
    struct WayForward {
        deadline: String,
        source: String,
    }

    handler! {
        RootHandler(gate): "root-handler" on Root;
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert!(scope.remove::<WayForward>());
            Ok(())
        }

        step "1" one => at_gate().then(checks());
    }

    /// The newest context counts: a deadline that is there no more cannot be missed.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_10_a_deadline_that_was_taken_out_of_the_context_is_not_missed() -> Result<()> {
        let gate = Gate::default();
        let db = Database::new().await;
        let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;
        let root = scoop.launch(Root).deadline(Duration::from_secs(2)).await?;
        gate.arrivals(1).await;
        let passed = "SELECT (clock_timestamp() > (context #>> '{HappyPathDeadlineKey,deadline}')::timestamptz)::int::bigint
            FROM scoop.message_event WHERE type = 'SEEN'";
        crate::support::eventually("it has passed", async || db.number(passed).await == 1).await;
        gate.open(1);
        assert_eq!(root.ends().await?, Outcome::Committed, "{}", root.tree().await?);
        Ok(())
    }
}

mod w_33 {
    use super::*;

    handler! {
        OnRoot: "twin" on Root;
        step "0" zero => launches(Child);
    }

    handler! {
        OnChild: "twin" on Child;
        step "first" first => done();
        step "second" second => done();
    }

    /// Two services of one database may not know of each other's names. A single program with both sagas would be
    /// refused at its start.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_33_sagas_of_one_name_on_two_topics_do_not_take_each_others_runs() -> Result<()> {
        let db = Database::new().await;
        let one = db.start((OnRoot,)).await?;
        let other = Scoop::builder().postgres(db.another_pool(5).await).only::<OnChild>().start().await?;
        let mut roots = one.launch_all((0..10).map(|_| Root)).await?;
        for root in &roots {
            assert_eq!(root.ends().await?, Outcome::Committed, "{}", root.tree().await?);
        }
        roots.extend(other.launch_all((0..10).map(|_| Root)).await?);
        for root in &roots {
            assert_eq!(root.ends().await?, Outcome::Committed, "{}", root.tree().await?);
            calls_of(root).expect(
                "invoke twin/0
                invoke twin/first
                invoke twin/second",
            );
        }
        Ok(())
    }
}

mod w_40 {
    use super::*;

    /// The same saga for parent and child, so that all names are the same, too.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "nested")]
    struct Nested {
        depth: u32,
    }

    handler! {
        Handler { notes: Notes }: "nested" on Nested;
        step "0" zero [finally = clean_up] => done();

        async fn clean_up(&self, scope: &mut Scope<'_>, nested: &Nested) -> Result<()> {
            self.notes.add(format!("clean up {}", nested.depth));
            if nested.depth > 0 {
                scope.launch(Nested { depth: nested.depth - 1 }).await?;
            }
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn w_40_child_is_cleaned_up_although_its_parent_was() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((Handler { notes: notes.clone() },)).await?;
        assert_eq!(scoop.launch(Nested { depth: 2 }).await?.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["clean up 2", "clean up 1", "clean up 0"]);
        Ok(())
    }
}
