//! The ways in which a step can fail.

use std::time::Duration;

use scoop::HierarchyId;

use super::*;
use crate::support::{Database, Gate};

/// The failure of the saga's only step for this message. Asserts that another saga still runs
/// afterwards.
async fn failure_of<S: Saga>(db: &Database, message: impl Message) -> Result<Failure> {
    let scoop = db.scoop().only::<S>().only::<Bystander>().start().await?;
    let outcome = scoop.launch(message).await?.ends().await?;
    assert_eq!(scoop.launch(Unrelated).await?.ends().await?, Outcome::Committed);
    match outcome {
        Outcome::RolledBack(failure) => Ok(failure),
        other => panic!("it did not fail: {other:?}"),
    }
}

/// Runs beside the failing saga.
#[derive(Default)]
struct Bystander;

#[derive(Message, Serialize, Deserialize)]
struct Unrelated;

#[saga]
#[subscribes(Unrelated)]
impl Bystander {
    #[step]
    async fn stand(&self, scope: &mut Scope<'_>, _: &Unrelated) -> Result<()> {
        sqlx::query("SELECT 1").execute(scope.tx().await?).await?;
        Ok(())
    }
}

mod panicking {
    use super::*;

    #[derive(Default)]
    struct Panicking;

    #[saga]
    #[subscribes(Root)]
    impl Panicking {
        #[step]
        async fn step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            scope.launch(Child).await?;
            panic!("the {} is on fire", "printer");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_is_the_steps_failure_with_its_place() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let failure = failure_of::<Panicking>(&db, Root).await?;
        assert_eq!((&*failure.kind, &*failure.message), ("Panic", "the printer is on fire"));
        let [place] = &*failure.stack_trace else { panic!("{failure:?}") };
        assert!(place.file_name.ends_with("failures.rs") && place.line_number > 1, "{place:?}");
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        Ok(())
    }
}

mod chained {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the price list")]
    struct Unreadable(#[source] std::num::ParseIntError);

    #[derive(Default)]
    struct Failing;

    #[saga]
    #[subscribes(Root)]
    impl Failing {
        #[step]
        async fn step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            "x".parse::<i32>().map_err(Unreadable)?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_error_is_stored_with_type_causes_and_place() -> Result<()> {
        let db = Database::new().await;
        let failure = failure_of::<Failing>(&db, Root).await?;
        assert!(failure.kind.ends_with("chained::Unreadable"), "{failure}");
        assert_eq!(failure.causes[0].message, "invalid digit found in string");
        assert!(failure.stack_trace[0].file_name.ends_with("failures.rs"));
        Ok(())
    }
}

mod slow {
    use super::*;

    handler! {
        Slow(gate): "slow" on Root;
        step "step" step [timeout = "50ms"] => executes("INSERT INTO effect VALUES (1)").then(at_gate());
    }

    handler! {
        SlowQuery: "slow-query" on Root;
        step "step" step [timeout = "50ms"] => executes("SELECT pg_sleep(5)");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_takes_too_long_fails() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let gate = Gate::default();
        let scoop = db.start((Slow { gate },)).await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert_eq!(failure.kind, "StepTimeout");
        assert_eq!(failure.message, "step `step` took longer than its limit of 50ms");
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_in_the_middle_of_a_long_statement_fails_in_time_too() -> Result<()> {
        let db = Database::new().await;
        let begin = std::time::Instant::now();
        assert_eq!(failure_of::<SlowQuery>(&db, Root).await?.kind, "StepTimeout");
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        Ok(())
    }
}

mod transactions {
    use sqlx::Connection;

    use super::*;

    /// The step's use of its transaction.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "transactions")]
    enum Deed {
        SwallowAnError,
        PassAnErrorOn,
        Commit,
        CommitAndBegin,
        Rollback,
        BreakADeferredConstraint,
        FailInside,
        SucceedInside,
    }

    #[derive(Default)]
    struct Doer;

    #[saga]
    #[subscribes(Deed)]
    impl Doer {
        #[step(name = "do")]
        async fn do_it(&self, scope: &mut Scope<'_>, deed: &Deed) -> Result<()> {
            let tx = scope.tx().await?;
            sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *tx).await?;
            let fails = "SELECT 1 / 0";
            match deed {
                Deed::SwallowAnError => {
                    let _ = sqlx::query(fails).execute(&mut *tx).await;
                }
                Deed::PassAnErrorOn => {
                    sqlx::query(fails).execute(&mut *tx).await?;
                }
                Deed::Commit => {
                    sqlx::query("COMMIT").execute(&mut *tx).await?;
                }
                Deed::CommitAndBegin => {
                    sqlx::raw_sql("COMMIT; BEGIN").execute(&mut *tx).await?;
                }
                Deed::Rollback => {
                    sqlx::query("ROLLBACK").execute(&mut *tx).await?;
                }
                Deed::BreakADeferredConstraint => {
                    sqlx::query("INSERT INTO effect VALUES (1)").execute(&mut *tx).await?;
                }
                Deed::FailInside => {
                    let mut inner = tx.begin().await?;
                    sqlx::query("INSERT INTO effect VALUES (2)").execute(&mut *inner).await?;
                    let failed = sqlx::query(fails).execute(&mut *inner).await;
                    assert!(failed.is_err());
                    inner.rollback().await?;
                }
                Deed::SucceedInside => {
                    let mut inner = tx.begin().await?;
                    sqlx::query("INSERT INTO effect VALUES (2)").execute(&mut *inner).await?;
                    inner.commit().await?;
                }
            }
            Ok(())
        }
    }

    async fn database() -> Database {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)").await;
        db
    }

    /// The message of the failure. Asserts that no effect is left.
    async fn message_of(deed: Deed) -> Result<String> {
        let db = database().await;
        let failure = failure_of::<Doer>(&db, deed).await?;
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 0);
        db.history().await.of(&["doer"]).about(&["M0"]).expect(
            "M0 EMITTED · ·
            M0 SEEN doer ·
            M0 ROLLING_BACK doer do
            M0 ROLLED_BACK doer RB(do[0,])",
        );
        Ok(failure.message)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_database_error_that_is_passed_on_is_the_failure() -> Result<()> {
        let message = message_of(Deed::PassAnErrorOn).await?;
        assert!(message.contains("division by zero"), "{message}");
        Ok(())
    }

    /// W-25.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_database_error_that_is_swallowed_fails_the_step_and_says_so() -> Result<()> {
        let message = message_of(Deed::SwallowAnError).await?;
        assert!(message.contains("a statement of the step failed, and the step went on"), "{message}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_deferred_constraint_that_fails_at_commit_fails_the_step() -> Result<()> {
        let message = message_of(Deed::BreakADeferredConstraint).await?;
        assert!(message.contains("could not be committed"), "{message}");
        assert!(message.contains("effect_n_key"), "{message}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn step_that_rolls_back_its_transaction_fails_with_the_reason() -> Result<()> {
        let message = message_of(Deed::Rollback).await?;
        assert!(message.starts_with("the step ended its transaction itself"), "{message}");
        Ok(())
    }

    /// Effects that the step committed itself cannot be undone, hence the failure.
    #[tokio::test(flavor = "multi_thread")]
    async fn step_that_commits_its_transaction_fails_with_the_reason() -> Result<()> {
        for deed in [Deed::Commit, Deed::CommitAndBegin] {
            let failure = failure_of::<Doer>(&database().await, deed).await?;
            assert!(failure.message.starts_with("the step ended its transaction itself"), "{failure}");
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nested_transactions_work() -> Result<()> {
        for (deed, effects) in [(Deed::FailInside, 1), (Deed::SucceedInside, 2)] {
            let db = database().await;
            let scoop = db.start((Doer,)).await?;
            assert_eq!(scoop.launch(deed).await?.ends().await?, Outcome::Committed);
            assert_eq!(db.number("SELECT count(*) FROM effect").await, effects);
        }
        Ok(())
    }
}

mod payloads {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "payloads")]
    struct Text(String);

    #[derive(Default)]
    struct Echo;

    /// Uses its text in every place: as a message, as a value, and as a launched message.
    #[saga(name = "echo")]
    #[subscribes(Text)]
    impl Echo {
        #[step(rollback = forget)]
        async fn echo(&self, _: &mut Scope<'_>, Text(text): &Text) -> Result<String> {
            Ok(text.repeat(3))
        }

        #[step]
        async fn launch(&self, scope: &mut Scope<'_>, Text(text): &Text) -> Result<()> {
            scope.detach(Text(text.repeat(3))).await?;
            Ok(())
        }

        async fn forget(&self, _: &mut Scope<'_>, _: &Text, _: &Failure) -> Result<()> {
            Ok(())
        }
    }

    /// The same message as another program may send it.
    async fn send(db: &Database, payload: &str) {
        let message =
            "INSERT INTO scoop.message (topic, payload) VALUES ('payloads', $payload$) RETURNING id";
        let message = message.replace("$payload$", &format!("'{payload}'"));
        db.execute(&format!(
            "WITH message AS ({message}),
             root AS (INSERT INTO scoop.message_event (message_id, type, cooperation_lineage)
                      SELECT id, 'EMITTED', ARRAY[gen_random_uuid()] FROM message
                      RETURNING message_id, cooperation_lineage[1] AS id)
             INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
             SELECT id, message_id, ARRAY[id, message_id], message_id, 'payloads', 'echo', now() FROM root"
        ))
        .await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_payload_that_does_not_fit_is_the_runs_failure() -> Result<()> {
        let db = Database::new().await;
        send(&db, r#"{"no": "text"}"#).await;
        let scoop = db.start((Echo,)).await?;
        let root = db.texts("SELECT cooperation_lineage[1]::text FROM scoop.message_event").await;
        let root = scoop.find(root[0].parse::<HierarchyId>()?).await?;
        let Outcome::RolledBack(failure) = root.ends().await? else { panic!("it did not fail") };
        assert_eq!(failure.kind, "PayloadMismatch");
        let message =
            format!("the payload of message {} on topic `payloads` does not fit", root.message_id());
        assert!(failure.message.starts_with(&message), "{failure}");
        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN echo ·
            M0 ROLLING_BACK echo echo
            M0 ROLLED_BACK echo RB(echo[0,])",
        );
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn oversized_payload_is_refused_at_its_origin() -> Result<()> {
        let db = Database::new().await;
        let scoop =
            db.scoop().only::<Echo>().limits(scoop::Limits::default().payload_bytes_max(20)).start().await?;
        let refused = scoop.launch(Text("x".repeat(19))).await.err().expect("it is 21 bytes with its quotes");
        let expected = " has 21 bytes as JSON, more than the 20 allowed; ";
        assert!(refused.is_invalid() && refused.to_string().contains(expected), "{refused}");
        assert_eq!(db.history().await.rows().len(), 0);

        // The message fits, but the value of the step does not.
        let Outcome::RolledBack(failure) = scoop.launch(Text("x".repeat(10))).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.starts_with("what step `echo` returned has 32 bytes"), "{failure}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_nul_in_a_payload_is_refused() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Echo,)).await?;
        let refused = scoop.launch(Text("a\0b".into())).await.err().expect("PostgreSQL cannot store it");
        let expected = " contains a NUL character (\\u0000), ";
        assert!(refused.is_invalid() && refused.to_string().contains(expected), "{refused}");
        Ok(())
    }

    /// [`Text`] in a program with another idea of it.
    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "payloads")]
    struct Number(i32);

    #[derive(Default)]
    struct Mistaken;

    #[saga(name = "mistaken")]
    #[subscribes(Root)]
    impl Mistaken {
        #[step]
        async fn launch(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Number(7)).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_payload_that_does_not_fit_fails_the_saga_that_launched_it() -> Result<()> {
        let run = Run::launch((Mistaken, Echo), Root).await?;
        let Outcome::RolledBack(failure) = run.root.ends().await? else { panic!("it did not fail") };
        let causes: Vec<_> =
            failure.root_causes().into_iter().map(|cause| (&*cause.kind, &*cause.source)).collect();
        assert!(
            matches!(&causes[..], [("PayloadMismatch", source)] if source.starts_with("echo[")),
            "{causes:?}"
        );
        run.history().await.of(&["mistaken"]).about(&["M0"]).expect(
            "M0 EMITTED · ·
            M0 SEEN mistaken ·
            M0 SUSPENDED mistaken launch
            M0 ROLLING_BACK mistaken launch cfhi=0
            M0 SUSPENDED mistaken RBC(launch[0,])
            M0 SUSPENDED mistaken RB(launch[0,])
            M0 ROLLED_BACK mistaken RB(launch[0,])",
        );
        Ok(())
    }

    handler! {
        Spoiling: "spoiling" on Root;
        #[step(rollback = undo)]
        async fn spoil(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Text("a\0b".into())).await?;
            Ok(())
        }

        rollback undo => done();
    }

    #[derive(Default)]
    struct Garbling;

    #[saga]
    #[subscribes(Child)]
    impl Garbling {
        #[step]
        async fn garble(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
            Err(Error::msg("bin\0ary"))
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nul_in_a_launched_message_is_the_steps_failure() -> Result<()> {
        let db = Database::new().await;
        let failure = failure_of::<Spoiling>(&db, Root).await?;
        assert!(failure.message.contains("contains a NUL character"), "{failure}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_nul_in_an_error_is_left_out() -> Result<()> {
        let db = Database::new().await;
        assert_eq!(failure_of::<Garbling>(&db, Child).await?.message, "binary");
        Ok(())
    }
}
