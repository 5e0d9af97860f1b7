//! None, one or several handlers and children.

use super::*;

mod nobody_handles {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unhandled_message_is_not_waited_for() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        Ok(())
    }
}

mod both_handlers_of_a_topic {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler;

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct SecondHandler;

    #[saga(name = "second-handler")]
    #[subscribes(Child)]
    impl SecondHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(RuntimeException("no chairs left").into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_handler_that_succeeded_is_undone_when_its_sibling_fails() -> Result<()> {
        let db = Database::new().await;
        let scoop =
            db.scoop().only::<RootHandler>().only::<ChildHandler>().only::<SecondHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        let history = db.history().await;
        history.of(&["root-handler", "child-handler"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0
            M1 COMMITTED child-handler 0
            M0 ROLLING_BACK root-handler 0 cfhi=0 exc=CRB(0)@root-handler[RTE(no chairs left)@second-handler]
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 8]
            M0 SUSPENDED root-handler RBC(0[0,])
            M1 ROLLING_BACK child-handler · exc==row 9
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 SUSPENDED child-handler RB(0[0,])
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        assert_eq!(history.of(&["second-handler"]).count("ROLLING_BACK"), 1, "{history}");
        Ok(())
    }
}

mod several_failures {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            scope.launch(Child2).await?;
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler2;

    #[saga(name = "child-handler-2")]
    #[subscribes(Child2)]
    impl ChildHandler2 {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
            invoked(scope);
            Err(RuntimeException("quick").into())
        }
    }

    struct SlowHandler {
        gate: Gate,
    }

    #[saga(name = "slow-handler")]
    #[subscribes(Child)]
    impl SlowHandler {
        #[step(name = "0")]
        async fn zero(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
            self.gate.pass().await;
            Err(RuntimeException("slow").into())
        }
    }

    /// W-51: neither the order of the messages nor that of the sagas matters.
    #[tokio::test(flavor = "multi_thread")]
    async fn failures_of_several_children_are_ordered_by_the_start_of_their_rollbacks() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.scoop().only::<RootHandler>().only::<SlowHandler>().only::<ChildHandler2>();
        let scoop = scoop.provide(SlowHandler { gate: gate.clone() }).start().await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        eventually("the other child rolls back", async || db.history().await.count("ROLLING_BACK") == 1)
            .await;
        gate.open(1);
        let Outcome::RolledBack(failure) = root.ends().await? else {
            panic!("it did not roll back");
        };
        let messages: Vec<_> = failure.causes.iter().map(|cause| &*cause.message).collect();
        assert_eq!(messages, ["quick", "slow"], "{}", failure.report());
        Ok(())
    }
}
