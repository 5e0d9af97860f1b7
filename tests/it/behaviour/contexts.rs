//! The context, beyond the conformance scenarios.

use serde_json::json;

use super::*;
use crate::support::{Database, Notes, calls_of};

#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct Tenant {
    name: String,
}

fn tenant(name: &str) -> Tenant {
    Tenant { name: name.into() }
}

fn name(scope: &Scope<'_>) -> Result<String> {
    Ok(scope.get::<Tenant>()?.map_or("no tenant".into(), |tenant| tenant.name))
}

mod flow {
    use super::*;

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Child).await?;
            scope.set(tenant("later"))?;
            scope.launch(Child).await?;
            scope.launch(Child).with(tenant("its own")).await?;
            scope.detach(Child2).await?;
            scope.detach(Child2).with(tenant("given")).await?;
            assert_eq!(name(scope)?, "later");
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("after: {}", name(scope)?));
            assert!(scope.remove::<Tenant>());
            assert!(!scope.remove::<Tenant>());
            Ok(())
        }

        #[step(name = "2")]
        async fn two(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.notes.add(format!("removed: {}", name(scope)?));
            assert!(scope.context().is_empty());
            Ok(())
        }
    }

    struct ChildHandler {
        notes: Notes,
    }

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            self.notes.add(format!("child: {}", name(scope)?));
            scope.set(tenant("the child's"))
        }
    }

    struct Detached {
        notes: Notes,
    }

    #[saga(name = "detached")]
    #[subscribes(Child2)]
    impl Detached {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
            self.notes.add(format!("detached: {}", name(scope)?));
            Ok(())
        }
    }

    /// A launched message gets the context of that moment, and no change comes back from it. A
    /// detached message gets the context that it is given.
    #[tokio::test(flavor = "multi_thread")]
    async fn context_reaches_children_and_later_steps_but_not_parents_or_detached_messages() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().only::<Detached>();
        let scoop = scoop.provide(RootHandler { notes: notes.clone() });
        let scoop = scoop.provide(ChildHandler { notes: notes.clone() });
        let scoop = scoop.provide(Detached { notes: notes.clone() }).start().await?;
        let root = scoop.launch(Root).with(tenant("first")).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        crate::support::eventually("all have said it", async || notes.all().len() == 7).await;
        let mut notes = notes.all();
        notes.sort();
        assert_eq!(
            notes,
            [
                "after: later",
                "child: first",
                "child: its own",
                "child: later",
                "detached: given",
                "detached: no tenant",
                "removed: no tenant",
            ]
        );
        db.history().await.of(&["root-handler"]).about(&["M0"]).expect_with(
            &[("F", json!({"Tenant": {"name": "first"}})), ("L", json!({"Tenant": {"name": "later"}}))],
            "M0 EMITTED · · ctx=F
            M0 SEEN root-handler · ctx=F
            M0 SUSPENDED root-handler 0 next=1 ctx=L
            M0 SUSPENDED root-handler 1 next=2
            M0 SUSPENDED root-handler 2
            M0 COMMITTED root-handler 2",
        );
        Ok(())
    }
}

mod limits {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    struct Bulk(String);

    /// The same key, another shape.
    #[derive(Debug, Serialize, Deserialize)]
    struct OtherTenant {
        number: u32,
    }

    // Not derived: a program with two derived types of one key does not start.
    impl ContextKey for OtherTenant {
        const KEY: &'static str = Tenant::KEY;
    }

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.set(tenant("small"))?;
            let before = scope.context().clone();
            let refusals = [
                scope.set(Bulk("x".repeat(200))).expect_err("too large"),
                scope.get::<OtherTenant>().expect_err("another shape"),
                scope.set(OtherTenant { number: 1 }).expect_err("another shape"),
                scope.set(tenant("a\0b")).expect_err("a NUL"),
            ];
            assert_eq!(*scope.context(), before, "it stays as it was");
            let words = ["`Bulk`", "`Tenant`", "`Tenant`", "`Tenant`"];
            for (refusal, word) in refusals.iter().zip(words) {
                assert!(refusal.to_string().contains(word), "{refusal}");
            }
            scope.launch(Child).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unstorable_element_is_refused_by_its_key_and_changes_nothing() -> Result<()> {
        let db = Database::new().await;
        let scoop = db
            .scoop()
            .only::<RootHandler>()
            .limits(scoop::Limits::default().context_bytes_max(100))
            .start()
            .await?;
        let refused = scoop.launch(Root).with(Bulk("x".repeat(200))).await;
        let Err(refused) = refused else { panic!("it is too large") };
        let text = refused.to_string();
        assert!(refused.is_invalid() && text.starts_with("the context has "), "{text}");
        let expected = " bytes as JSON, more than the 100 allowed, most of them under the key `Bulk`;";
        assert!(text.contains(expected), "{text}");
        let refused = scoop.launch(Root).with(tenant("a\0b")).await;
        let Err(refused) = refused else { panic!("it has a NUL character") };
        let expected = " of the context contains a NUL character (\\u0000), ";
        assert!(refused.is_invalid() && refused.to_string().contains(expected), "{refused}");
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed, "{}", root.tree().await?);
        assert_eq!(db.history().await.count("EMITTED"), 2);
        Ok(())
    }
}

mod numbers {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    struct Count {
        value: u32,
    }

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.set(Count { value: 1 })?;
            scope.launch(Child).await?;
            Ok(())
        }

        rollback undo => sets(Count { value: 3 });

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.set(Count { value: 2 })?;
            Err(SIMULATED.into())
        }
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => sets(Count { value: 10 });
        rollback undo => sets(Count { value: 11 });
    }

    const SOMEBODY_ELSES: &str =
        r#"{"price": 1.10, "huge": 12345678901234567890123456789.000000000000000000001, "null": null}"#;

    /// W-41 and W-42: an element that this program does not know is in every row to the last digit,
    /// also beside merged ones.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_41_w_42_unknown_numbers_stay_exact_in_every_row() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler, ChildHandler)).await?;
        let theirs: Theirs = serde_json::from_str(SOMEBODY_ELSES)?;
        let root = scoop.launch(Root).with(theirs).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        let distinct = "SELECT DISTINCT (context -> 'Theirs')::text FROM scoop.message_event";
        let expected =
            r#"{"huge": 12345678901234567890123456789.000000000000000000001, "null": null, "price": 1.10}"#;
        assert_eq!(db.texts(distinct).await, [expected]);
        let counts = "SELECT coalesce(context #>> '{Count,value}', '-') FROM scoop.message_event
                      WHERE type IN ('COMMITTED', 'ROLLED_BACK', 'ROLLBACK_EMITTED') ORDER BY created_at";
        assert_eq!(db.texts(counts).await, ["10", "2", "11", "3"]);
        Ok(())
    }

    /// Kept as text, so that this program does not touch it.
    #[derive(ContextKey, Serialize, Deserialize)]
    #[serde(transparent)]
    struct Theirs(Box<serde_json::value::RawValue>);
}

mod timeouts {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [timeout = "50ms"] => sets(tenant("in time")).then(never_ends());
    }

    /// The context changes of a step outlive its failure, of any kind.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_takes_too_long_leaves_its_context_behind() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler,)).await?;
        assert!(matches!(scoop.launch(Root).await?.ends().await?, Outcome::RolledBack(_)));
        db.history().await.expect_with(
            &[("T", json!({"Tenant": {"name": "in time"}}))],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 ROLLING_BACK root-handler 0 ctx=T
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=T",
        );
        Ok(())
    }
}

mod given_up {
    use super::*;
    use crate::support::Gate;

    handler! {
        RootHandler(gate): "root-handler" on Root;
        step "0" zero => sets(tenant("too late")).then(at_gate());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_step_that_gives_up_at_its_end_leaves_its_context_behind() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((RootHandler { gate: gate.clone() },), Root).await?;
        gate.arrivals(1).await;
        run.scoop.cancel(run.root.id(), "enough").await?;
        gate.open(1);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
        run.history().await.expect_with(
            &[("T", json!({"Tenant": {"name": "too late"}}))],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 CANCELLATION_REQUESTED · ·
            M0 ROLLING_BACK root-handler 0 ctx=T
            M0 ROLLED_BACK root-handler RB(0[0,]) ctx=T",
        );
        Ok(())
    }
}

/// Elements of the protocol that another program wrote in an unreadable form.
mod unreadable {
    use super::*;
    use crate::support::invoked;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "AbsoluteDeadlineKey")]
    struct NoDeadline {
        deadline: String,
    }

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "SleepUntilKey")]
    struct NoSleep {
        #[serde(rename = "wakeAfter")]
        wake_after: String,
    }

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.set(NoDeadline { deadline: "soon".into() })
        }

        rollback undo => done();
        step "1" one => done();
    }

    /// An unreadable deadline might have passed: the run gives up with that reason, and is rolled
    /// back. An unreadable time to sleep counts as none.
    #[tokio::test(flavor = "multi_thread")]
    async fn unreadable_deadline_ends_the_forward_path_by_name_and_strands_no_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler,)).await?;
        let root = scoop.launch(Root).with(NoSleep { wake_after: "later".into() }).await?;
        let Outcome::RolledBack(failure) = root.ends().await? else {
            panic!("{}", root.tree().await?);
        };
        let cause = failure.root_causes()[0];
        assert_eq!(cause.kind, "ContextMismatch");
        assert!(cause.message.contains("`AbsoluteDeadlineKey`"), "{cause}");
        calls_of(&root).expect(
            "invoke root-handler/0
            rollback root-handler/0",
        );
        Ok(())
    }
}
