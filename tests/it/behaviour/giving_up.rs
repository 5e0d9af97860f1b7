//! Steps of runs that have to give up when the step ends.

use super::*;
use crate::support::{Database, Gate};

#[derive(ContextKey, Serialize, Deserialize)]
#[context(key = "giving-up.mark")]
struct Mark(String);

handler! {
    Marking(gate): "marking" on Root;
    step "mark" mark => sets(Mark("left behind".into())).then(at_gate());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_context_that_a_refused_step_left_behind_is_on_record() -> Result<()> {
    let gate = Gate::default();
    let run = Run::launch((Marking { gate: gate.clone() },), Root).await?;
    gate.arrivals(1).await;
    run.scoop.cancel(run.root.id(), "enough").await?;
    gate.open(1);
    assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
    let marked = "SELECT type::text FROM scoop.message_event
                  WHERE context ->> 'giving-up.mark' = 'left behind' ORDER BY created_at";
    assert_eq!(run.db.texts(marked).await, ["ROLLING_BACK", "ROLLED_BACK"]);
    Ok(())
}

/// The cleanup runs once, for every way in which a step can fail.
mod cleaning_up {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use uuid::Uuid;

    use super::*;
    use crate::support::in_a_process_that_dies;

    const TABLES: &str = "
        CREATE TABLE effect (what text);
        CREATE TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)";

    async fn effect(scope: &mut Scope<'_>, what: &str) -> Result<()> {
        sqlx::query("INSERT INTO effect VALUES ($1)").bind(what).execute(scope.tx().await?).await?;
        Ok(())
    }

    const EFFECTS: &str = "SELECT what FROM effect ORDER BY what";

    struct Long {
        gate: Gate,
    }

    #[saga(name = "long-step")]
    #[subscribes(Root)]
    impl Long {
        #[step(finally = close)]
        async fn work(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            effect(scope, "worked").await?;
            self.gate.pass().await;
            Ok(())
        }

        async fn close(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            effect(scope, "closed").await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_step_whose_run_was_cancelled_meanwhile() -> Result<()> {
        let db = Database::new().await;
        db.execute(TABLES).await;
        let gate = Gate::default();
        let scoop = db.start((Long { gate: gate.clone() },)).await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        scoop.cancel(root.id(), "enough").await?;
        gate.open(1);
        let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it was cancelled") };
        assert_eq!(failure.root_causes()[0].message, "enough");
        assert_eq!(db.texts(EFFECTS).await, ["closed"]);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_step_that_was_cancelled_and_whose_process_died() -> Result<()> {
        let db = Database::new().await;
        db.execute(TABLES).await;
        let gate = Gate::default();
        let root = in_a_process_that_dies(&db, {
            let gate = gate.clone();
            async move |builder: scoop::Builder| {
                let scoop = builder.only::<Long>().provide(Long { gate: gate.clone() }).start().await?;
                let root = scoop.launch(Root).await?;
                gate.arrivals(1).await;
                scoop.cancel(root.id(), "enough").await?;
                Ok((scoop, root.id()))
            }
        })
        .await?;
        let scoop = db.start((Long { gate },)).await?;
        assert!(matches!(scoop.find(root).await?.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(db.texts(EFFECTS).await, ["closed"]);
        Ok(())
    }

    handler! {
        Twice: "twice-the-same" on Root;
        step "repeat" repeat [finally = close] => sets(Mark("left behind".into())).then(executes("INSERT INTO one VALUES (1), (1)"));

        async fn close(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let mark = scope.get::<Mark>()?.map_or("nothing".into(), |mark| mark.0);
            effect(scope, &mark).await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_step_that_could_not_be_committed() -> Result<()> {
        let db = Database::new().await;
        db.execute(TABLES).await;
        let scoop = db.start((Twice,)).await?;
        let outcome = scoop.launch(Root).await?.ends().await?;
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, "TransactionError");
        assert_eq!(db.texts(EFFECTS).await, ["left behind"]);
        Ok(())
    }

    handler! {
        Busy: "busy-line" on Root;
        step "call" call [retry(max = 5, backoff = "1h"), finally = hang_up] => fails(SIMULATED);

        async fn hang_up(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            effect(scope, "hung up").await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn after_a_step_that_was_cancelled_between_two_attempts() -> Result<()> {
        let db = Database::new().await;
        db.execute(TABLES).await;
        let scoop = db.start((Busy,)).await?;
        let root = scoop.launch(Root).await?;
        let retries = "SELECT coalesce(max((tries).retries), 0)::bigint FROM scoop.run";
        crate::support::eventually("the line was busy", async || db.number(retries).await > 0).await;
        scoop.cancel(root.id(), "enough").await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        assert_eq!(db.texts(EFFECTS).await, ["hung up"]);
        Ok(())
    }

    handler! {
        Shaky: "shaky-cleanup" on Root;
        step "fail" fail [finally = close] => fails(SIMULATED);

        /// The first time the server closes the connection.
        async fn close(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            if scope.attempt() == 0 {
                let ended = "SELECT pg_terminate_backend(pg_backend_pid())";
                sqlx::query(ended).execute(scope.tx().await?).await?;
            }
            effect(scope, "closed").await
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn again_when_the_connection_was_lost_meanwhile() -> Result<()> {
        let db = Database::new().await;
        db.execute(TABLES).await;
        let scoop = db.start((Shaky,)).await?;
        let outcome = scoop.launch(Root).await?.ends().await?;
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        assert!(failure.causes.is_empty(), "{}", failure.report());
        assert_eq!(db.texts(EFFECTS).await, ["closed"]);
        Ok(())
    }

    #[derive(Clone, Default)]
    struct Keyed {
        keys: Arc<Mutex<Vec<Uuid>>>,
    }

    impl Keyed {
        fn note(&self, scope: &Scope<'_>) {
            self.keys.lock().expect("no test fails in here").push(scope.idempotency_key());
        }
    }

    #[saga(name = "keyed")]
    #[subscribes(Root)]
    impl Keyed {
        #[step(rollback = undo, finally = close)]
        async fn first(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.note(scope);
            Ok(())
        }

        #[step(finally = close)]
        async fn second(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.note(scope);
            Err(SIMULATED)?
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            self.note(scope);
            Ok(())
        }

        async fn close(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.note(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn has_a_key_of_its_own_for_effects_elsewhere() -> Result<()> {
        let db = Database::new().await;
        let saga = Keyed::default();
        let scoop = db.scoop().only::<Keyed>().provide(saga.clone()).start().await?;
        assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RolledBack(_)));
        let keys = saga.keys.lock().expect("no test fails in here").clone();
        assert_eq!(keys.len(), 5, "two steps, each cleaned up after, and one undone");
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        Ok(())
    }
}

/// A rollback that is given up ends with all known failures, since there is no later report of
/// them.
mod in_a_rollback {
    use std::time::Duration;

    use super::*;
    use crate::support::eventually;

    handler! {
        Above: "gives-its-rollback-up" on Root;
        step "launch" launch => launches(Child);
        step "fail" fail => fails(RuntimeException("why it turned back"));
    }

    handler! {
        Below(gate): "is-slow-to-undo" on Child;
        step "act" act [rollback = undo] => done();
        rollback undo => at_gate().then(fails(RuntimeException("why it could not be undone")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_failure_is_lost() -> Result<()> {
        let gate = Gate::default();
        let db = Database::new().await;
        let scoop = db.start((Above, Below { gate: gate.clone() })).await?;
        let root = scoop.launch(Root).rollback_deadline(Duration::from_secs(1)).await?;
        gate.arrivals(1).await;
        let overdue = "SELECT count(*) FROM scoop.run WHERE parent IS NULL AND giving_up";
        eventually("the deadline has passed", async || db.number(overdue).await > 0).await;
        gate.open(1);
        let Outcome::RollbackFailed(failure) = root.ends().await? else { panic!("it was not undone") };
        let causes: Vec<_> = failure.root_causes().iter().map(|cause| cause.message.clone()).collect();
        assert!(causes[0].starts_with("missed the rollback deadline"), "{causes:?}");
        assert_eq!(causes[1..], ["why it could not be undone", "why it turned back"]);
        Ok(())
    }
}
