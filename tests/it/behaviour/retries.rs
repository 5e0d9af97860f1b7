//! Steps that are tried again before their failure counts.

use std::time::Duration;

use super::*;
use crate::support::{
    Database, Gate, Notes, calls_of, compensated, eventually, in_a_process_that_dies, invoked,
};

const NEVER: Duration = Duration::from_secs(3_600);

mod steps {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "retries.mark")]
    struct Mark {
        attempt: u32,
    }

    #[derive(Clone, Copy, Serialize, Deserialize)]
    enum Why {
        Transient,
        Permanent,
        Panic,
        NotWorthIt,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Try {
        /// How often it fails.
        fails: usize,
        with: Why,
    }

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Try)]
    impl RootHandler {
        #[step(name = "0", retry(max = 2, backoff = "1ms..2ms", when = is_worth_it))]
        async fn zero(&self, scope: &mut Scope<'_>, message: &Try) -> Result<()> {
            let before = invoked(scope);
            assert_eq!(scope.attempt() as usize, before);
            self.notes.add(scope.idempotency_key().to_string());
            assert!(scope.get::<Mark>()?.is_none(), "the context changes of a failed attempt are gone");
            scope.set(Mark { attempt: scope.attempt() })?;
            scope.launch(Child).await?;
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            if before >= message.fails {
                return Ok(());
            }
            match message.with {
                Why::Transient => Err(SIMULATED.into()),
                Why::Permanent => Err(Error::from(SIMULATED).into_permanent()),
                Why::Panic => panic!("a failed attempt"),
                Why::NotWorthIt => Err(RuntimeException("not worth it").into()),
            }
        }

        fn is_worth_it(error: &Error) -> bool {
            !error.to_string().contains("not worth it")
        }
    }

    /// Also returns the hierarchy in words.
    async fn play(fails: usize, with: Why) -> Result<(Database, Outcome, Vec<String>, String)> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let notes = Notes::default();
        let scoop = db.scoop().only::<RootHandler>().provide(RootHandler { notes: notes.clone() });
        // The pauses end by the clock, not by polling.
        let scoop = scoop.poll_interval(NEVER).start().await?;
        let tried = scoop.launch(Try { fails, with }).await?;
        let outcome = tried.ends().await?;
        Ok((db, outcome, notes.all(), tried.tree().await?.to_string()))
    }

    /// One failure, of an attempt that counts.
    async fn failed(fails: usize, with: Why, attempts: usize) -> Result<()> {
        let (db, outcome, keys, _) = play(fails, with).await?;
        assert!(matches!(outcome, Outcome::RolledBack(_)), "{outcome:?}");
        assert_eq!(keys.len(), attempts);
        let history = db.history().await;
        assert_eq!((history.count("ROLLING_BACK"), history.count("EMITTED")), (1, 1), "{history}");
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_attempts_leave_nothing_behind_but_words_in_the_history() -> Result<()> {
        for (with, why) in [(Why::Transient, "Simulated failure"), (Why::Panic, "a failed attempt")] {
            let (db, outcome, keys, tree) = play(2, with).await?;
            assert_eq!(outcome, Outcome::Committed);
            let told = tree.lines().find(|line| line.contains("completed 0")).expect("it is shown");
            let told = told.split_once("completed 0: ").map(|(_, told)| told);
            assert!(
                told.is_some_and(|it| it.starts_with("2 attempts failed before, the newest one so: ")),
                "{tree}"
            );
            assert!(told.is_some_and(|it| it.contains(why)), "{tree}");
            assert_eq!(keys.len(), 3);
            assert!(keys.iter().all(|key| *key == keys[0]), "one key for all attempts: {keys:?}");
            assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
            db.history().await.expect_with(
                &[("M", serde_json::json!({"retries.mark": {"attempt": 2}}))],
                "M0 EMITTED · ·
                M0 SEEN root-handler ·
                M1 EMITTED root-handler 0 ctx=M
                M0 SUSPENDED root-handler 0 ctx=M
                M0 COMMITTED root-handler 0 ctx=M",
            );
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_attempt_counts() -> Result<()> {
        failed(9, Why::Transient, 3).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failure_not_worth_a_retry_is_not_retried() -> Result<()> {
        failed(9, Why::Permanent, 1).await?;
        failed(9, Why::NotWorthIt, 1).await
    }
}

mod compensations {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, rollback_retry(max = 3, backoff = "1ms")] => done();

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            match compensated(scope) {
                0 | 1 => Err(SIMULATED.into()),
                _ => Ok(()),
            }
        }

        step "1" one => fails(SIMULATED);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_is_tried_again_too() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().poll_interval(NEVER).start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0
            rollback root-handler/0
            rollback root-handler/0",
        );
        assert_eq!(db.history().await.count("ROLLBACK_FAILED"), 0);
        let tree = root.tree().await?.to_string();
        assert!(tree.contains("undid 0: 2 attempts failed before, the newest one so: "), "{tree}");
        Ok(())
    }
}

mod pauses {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
    enum Pause {
        Long,
        None,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Task {
        pause: Pause,
    }

    handler! {
        RootHandler(gate): "root-handler" on Task;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();

        #[step(name = "1", retry(max = 3, backoff = "1h"))]
        async fn one(&self, scope: &mut Scope<'_>, task: &Task) -> Result<()> {
            invoked(scope);
            if task.pause == Pause::None {
                return Ok(());
            }
            self.gate.pass().await;
            Err(SIMULATED.into())
        }
    }

    const UNDONE: &str = "invoke root-handler/0
        invoke root-handler/1
        rollback root-handler/0";

    async fn start(db: &Database, gate: &Gate) -> Result<Scoop> {
        let scoop = db.scoop().only::<RootHandler>().provide(RootHandler { gate: gate.clone() });
        Ok(scoop.concurrency(1).poll_interval(NEVER).start().await?)
    }

    /// W-29 and W-30: the pause is the run's own.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_29_w_30_pausing_run_blocks_no_other_and_can_be_cancelled() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = start(&db, &gate).await?;
        let long = scoop.launch(Task { pause: Pause::Long }).await?;
        gate.arrivals(1).await;
        gate.open(1);
        let retries =
            async || db.number("SELECT count(*) FROM scoop.run WHERE (tries).retries = 1").await == 1;
        eventually("it pauses", retries).await;
        let tree = long.tree().await?;
        assert!(
            matches!(&tree.runs()[0].state, RunState::Retrying { attempts: 1, reason } if reason.contains("Simulated")),
            "{tree}"
        );
        // There is but one slot.
        let other = scoop.launch(Task { pause: Pause::None }).await?;
        assert_eq!(other.ends().await?, Outcome::Committed);

        assert_eq!(scoop.cancel(long.id(), "enough").await?, CancelAnswer::Accepted);
        assert!(matches!(long.ends().await?, Outcome::RolledBack(_)));
        calls_of(&long).expect(UNDONE);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn run_cancelled_during_an_attempt_does_not_pause() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = start(&db, &gate).await?;
        let root = scoop.launch(Task { pause: Pause::Long }).await?;
        gate.arrivals(1).await;
        assert_eq!(scoop.cancel(root.id(), "enough").await?, CancelAnswer::Accepted);
        gate.open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(UNDONE);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deadline_ends_a_pause() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = start(&db, &gate).await?;
        let root = scoop.launch(Task { pause: Pause::Long }).deadline(Duration::from_secs(1)).await?;
        gate.open(1);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        calls_of(&root).expect(UNDONE);
        Ok(())
    }

    /// The number of attempts is stored, so another process continues the count.
    #[tokio::test(flavor = "multi_thread")]
    async fn attempts_are_counted_over_a_death() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let root = in_a_process_that_dies(&db, {
            let gate = gate.clone();
            move |builder: scoop::Builder| async move {
                let scoop = builder.only::<RootHandler>().provide(RootHandler { gate: gate.clone() });
                let scoop = scoop.start().await?;
                let root = scoop.launch(Task { pause: Pause::Long }).await?;
                gate.open(1);
                root.comes_to(|tree| !matches!(tree.runs()[0].state, RunState::Running | RunState::Pending))
                    .await?;
                Ok((scoop, root.id()))
            }
        })
        .await?;
        let counted = "SELECT count(*) FROM scoop.run WHERE (tries).retries = 1 AND state = 'ready'";
        eventually("the attempt is recorded", async || db.number(counted).await == 1).await;
        // The hour has passed.
        db.execute("UPDATE scoop.run SET ready_at = clock_timestamp()").await;
        for count in 2..=4 {
            let scoop = db.start((RootHandler { gate: gate.clone() },)).await?;
            gate.open(1);
            let root = scoop.find(root).await?;
            if count == 4 {
                assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
                assert_eq!(
                    calls_of(&root).count(),
                    1 + 4 + 1,
                    "the first attempt, three more, and the rollback"
                );
                return Ok(());
            }
            let counted =
                format!("SELECT count(*) FROM scoop.run WHERE (tries).retries = {count} AND state = 'ready'");
            eventually("the attempt is recorded", async || db.number(&counted).await == 1).await;
            scoop.shutdown().await?;
            db.execute("UPDATE scoop.run SET ready_at = clock_timestamp()").await;
        }
        Ok(())
    }
}
