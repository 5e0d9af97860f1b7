//! `finally`: cleaning up after a step.

use super::*;
use crate::support::{Database, Gate, Notes};

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Fails {
    Never,
    Step,
    StepAndCleanup,
    Cleanup,
    LaterStep,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "root-topic")]
struct Try {
    fails: Fails,
}

struct RootHandler {
    notes: Notes,
}

#[saga(name = "root-handler")]
#[subscribes(Try)]
impl RootHandler {
    #[step(name = "0", rollback = undo, finally = clean_up)]
    async fn zero(&self, scope: &mut Scope<'_>, root: &Try) -> Result<u32> {
        self.notes.add("step");
        scope.launch(Child).await?;
        sqlx::query("INSERT INTO effect VALUES ('step')").execute(scope.tx().await?).await?;
        match root.fails {
            Fails::Step | Fails::StepAndCleanup => Err(SIMULATED.into()),
            _ => Ok(7),
        }
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &Try, output: &u32, _: &Failure) -> Result<()> {
        self.notes.add(format!("undo {output}"));
        Ok(())
    }

    async fn clean_up(&self, scope: &mut Scope<'_>, root: &Try, output: Option<&u32>) -> Result<()> {
        self.notes.add(format!("clean up {output:?}"));
        sqlx::query("INSERT INTO effect VALUES ('cleanup')").execute(scope.tx().await?).await?;
        match root.fails {
            Fails::StepAndCleanup | Fails::Cleanup => Err(IllegalStateException("cleanup").into()),
            _ => Ok(()),
        }
    }

    #[step(name = "1")]
    async fn one(&self, _: &mut Scope<'_>, root: &Try) -> Result<()> {
        self.notes.add("later");
        if root.fails == Fails::LaterStep { Err(SIMULATED.into()) } else { Ok(()) }
    }
}

handler! {
    ChildHandler(gate): "child-handler" on Child;
    step "0" zero => at_gate().silently();
}

struct Played {
    db: Database,
    outcome: Outcome,
    calls: Vec<String>,
}

impl Played {
    async fn effects(&self) -> Vec<String> {
        self.db.texts("SELECT what FROM effect ORDER BY what").await
    }
}

async fn play(fails: Fails) -> Result<Played> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (what text)").await;
    let (notes, gate) = (Notes::default(), Gate::default());
    gate.open(1);
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { notes: notes.clone() });
    let scoop = scoop.provide(ChildHandler { gate }).start().await?;
    let outcome = scoop.launch(Try { fails }).await?.ends().await?;
    Ok(Played { db, outcome, calls: notes.all() })
}

#[tokio::test(flavor = "multi_thread")]
async fn successful_step_is_cleaned_up_after_with_its_value() -> Result<()> {
    let played = play(Fails::Never).await?;
    assert_eq!(played.outcome, Outcome::Committed);
    assert_eq!(played.calls, ["step", "clean up Some(7)", "later"]);
    assert_eq!(played.effects().await, ["cleanup", "step"]);
    Ok(())
}

/// The cleanup's changes in the database are kept, unlike those of the step.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_failed_is_cleaned_up_after_without_a_value() -> Result<()> {
    let played = play(Fails::Step).await?;
    assert!(matches!(played.outcome, Outcome::RolledBack(_)));
    assert_eq!(played.calls, ["step", "clean up None"]);
    assert_eq!(played.effects().await, ["cleanup"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_fails_adds_to_the_failure_of_the_step() -> Result<()> {
    let played = play(Fails::StepAndCleanup).await?;
    let Outcome::RolledBack(failure) = &played.outcome else {
        panic!("{:?}", played.outcome);
    };
    assert_eq!(failure.message, "Simulated failure to test rollback");
    let causes: Vec<_> = failure.causes.iter().map(|cause| &*cause.message).collect();
    assert_eq!(causes, ["cleanup"]);
    assert_eq!(played.effects().await, [""; 0]);
    Ok(())
}

/// Cleaning up is a step of its own. Its failure does not make it unnecessary: once the children are undone, the
/// rollback tries it again, and fails here.
#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_fails_by_itself_is_the_failure() -> Result<()> {
    let played = play(Fails::Cleanup).await?;
    assert_eq!(played.calls, ["step", "clean up Some(7)", "undo 7", "clean up Some(7)"]);
    assert!(matches!(played.outcome, Outcome::RollbackFailed(_)), "{:?}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_cleanup_is_not_repeated_by_the_rollback() -> Result<()> {
    let played = play(Fails::LaterStep).await?;
    assert!(matches!(played.outcome, Outcome::RolledBack(_)));
    assert_eq!(played.calls, ["step", "clean up Some(7)", "later", "undo 7"]);
    Ok(())
}

/// The children run between the step and its cleanup, and a cancellation may arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_is_cleaned_up_after() -> Result<()> {
    let db = Database::new().await;
    db.execute("CREATE TABLE effect (what text)").await;
    let (notes, gate) = (Notes::default(), Gate::default());
    let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
    let scoop = scoop.provide(RootHandler { notes: notes.clone() });
    let scoop = scoop.provide(ChildHandler { gate: gate.clone() }).start().await?;
    let root = scoop.launch(Try { fails: Fails::Never }).await?;
    gate.arrivals(1).await;
    scoop.cancel(root.id(), "enough").await?;
    gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(notes.all(), ["step", "undo 7", "clean up Some(7)"]);
    Ok(())
}

/// The effects of a step that has to give up, or cannot be committed, are discarded. Its effects outside the database
/// remain, so it is cleaned up after.
mod discarded {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "cleanup.mark")]
    struct Mark {}

    struct RootHandler {
        notes: Notes,
        gate: Gate,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", finally = clean_up)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<u32> {
            self.notes.add("step");
            scope.set(Mark {})?;
            // A constraint that is looked at when the transaction is committed, where there is one.
            sqlx::query("INSERT INTO effect VALUES ('step')").execute(scope.tx().await?).await?;
            self.gate.pass().await;
            Ok(7)
        }

        async fn clean_up(&self, scope: &mut Scope<'_>, _: &Root, output: Option<&u32>) -> Result<()> {
            assert!(scope.get::<Mark>()?.is_some());
            self.notes.add(format!("clean up {output:?}"));
            Ok(())
        }
    }

    async fn start(db: &Database, notes: &Notes, gate: &Gate) -> Result<Scoop> {
        let root = RootHandler { notes: notes.clone(), gate: gate.clone() };
        Ok(db.scoop().only::<RootHandler>().provide(root).start().await?)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_gives_up_at_its_end_is_cleaned_up_after() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (what text)").await;
        let (notes, gate) = (Notes::default(), Gate::default());
        let scoop = start(&db, &notes, &gate).await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        scoop.cancel(root.id(), "enough").await?;
        gate.open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(notes.all(), ["step", "clean up None"]);
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        db.history().await.expect_with(
            &[("M", serde_json::json!({"cleanup.mark": {}}))],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 CANCELLATION_REQUESTED · ·
            M0 ROLLING_BACK root-handler 0 ctx=M exc=GU@root-handler[=row 3]
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=M",
        );
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_cannot_be_committed_is_cleaned_up_after() -> Result<()> {
        let db = Database::new().await;
        db.execute(
            "CREATE TABLE known (what text PRIMARY KEY);
             CREATE TABLE effect (what text REFERENCES known DEFERRABLE INITIALLY DEFERRED)",
        )
        .await;
        let (notes, gate) = (Notes::default(), Gate::default());
        gate.open(1);
        let scoop = start(&db, &notes, &gate).await?;
        assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(notes.all(), ["step", "clean up None"]);
        db.history().await.expect_with(
            &[("M", serde_json::json!({"cleanup.mark": {}}))],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 ROLLING_BACK root-handler 0 ctx=M exc=TransactionError
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=M",
        );
        Ok(())
    }
}

mod with_retries_and_handlers {
    use super::*;

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", retry(max = 2, backoff = "1ms"), on_child_failure = ignore, finally = clean_up)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("attempt {}", scope.attempt()));
            scope.launch(Child).await?;
            if scope.attempt() < 2 { Err(SIMULATED.into()) } else { Ok(()) }
        }

        async fn ignore(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            self.notes.add("ignore");
            Ok(())
        }

        async fn clean_up(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add("clean up");
            Ok(())
        }
    }

    handler! {
        FailingChild: "failing-child" on Child;
        step "0" zero => fails(SIMULATED);
    }

    /// A cleanup between attempts would be too early, since the step has not failed yet. So would one before the
    /// children's failures are handled.
    #[tokio::test(flavor = "multi_thread")]
    async fn retried_step_with_a_handled_failure_is_cleaned_up_after_once() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((RootHandler { notes: notes.clone() }, FailingChild)).await?;
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["attempt 0", "attempt 1", "attempt 2", "ignore", "clean up"]);
        Ok(())
    }
}

mod on_shaky_ground {
    use super::*;

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", finally = clean_up)]
        async fn zero(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add("step");
            Err(SIMULATED.into())
        }

        async fn clean_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("clean up {}", scope.attempt()));
            if scope.attempt() == 0 { Err(Error::infrastructure("no connection")) } else { Ok(()) }
        }
    }

    /// A cleanup with an infrastructure failure is not lost. The failure of its step is not recorded yet, so the step
    /// runs again, and then the cleanup.
    #[tokio::test(flavor = "multi_thread")]
    async fn cleanup_with_an_infrastructure_failure_is_repeated() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((RootHandler { notes: notes.clone() },)).await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("the step fails");
        };
        assert_eq!((&*failure.message, failure.causes.len()), (SIMULATED.0, 0));
        assert_eq!(notes.all(), ["step", "clean up 0", "step", "clean up 1"]);
        Ok(())
    }
}
