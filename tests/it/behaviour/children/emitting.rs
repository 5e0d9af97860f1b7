//! Handlers of child failures that launch something else instead.

use super::*;

mod emitting_anew {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo, on_child_failure = handle_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn handle_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            handled(scope);
            scope.launch(Child2).await?;
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler;

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(RuntimeException("no chairs left").into())
        }
    }

    #[derive(Default)]
    struct ChildHandler2;

    #[saga(name = "child-handler-2")]
    #[subscribes(Child2)]
    impl ChildHandler2 {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child2, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_of_a_failure_handler_are_waited_for_and_undone() -> Result<()> {
        let db = Database::new().await;
        let scoop =
            db.scoop().only::<RootHandler>().only::<ChildHandler>().only::<ChildHandler2>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M2 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1 cfhi=0
            M2 SEEN child-handler-2 ·
            M2 SUSPENDED child-handler-2 0
            M2 COMMITTED child-handler-2 0
            M0 ROLLING_BACK root-handler 1 exc=RTE(Simulated failure to test rollback)@root-handler
            M2 ROLLBACK_EMITTED root-handler RBC(0[0,0]) exc=PSS@root-handler[=row 13]
            M0 SUSPENDED root-handler RBC(0[0,0])
            M2 ROLLING_BACK child-handler-2 · exc==row 14
            M2 SUSPENDED child-handler-2 RBC(0[0,])
            M2 SUSPENDED child-handler-2 RB(0[0,])
            M2 ROLLED_BACK child-handler-2 RB(0[0,])
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            hcf root-handler/0
            invoke child-handler-2/0
            invoke root-handler/1
            rollback child-handler-2/0
            rollback root-handler/0",
        );
        Ok(())
    }
}

mod second_failure {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", on_child_failure = handle_zero)]
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

        async fn handle_zero(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            let before = handled(scope);
            assert_eq!(failure.causes.len(), 1);
            assert_eq!(failure.causes[0].message, ["first", "second"][before]);
            if before == 0 {
                scope.launch(Child2).await?;
            }
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler;

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(RuntimeException("first").into())
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
            Err(RuntimeException("second").into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_failure_calls_the_handler_again_with_that_failure_only() -> Result<()> {
        let db = Database::new().await;
        let scoop =
            db.scoop().only::<RootHandler>().only::<ChildHandler>().only::<ChildHandler2>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M2 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1 cfhi=0
            M2 SEEN child-handler-2 ·
            M2 ROLLING_BACK child-handler-2 0
            M2 ROLLED_BACK child-handler-2 RB(0[0,])
            M0 SUSPENDED root-handler 0 next=1 cfhi=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        Ok(())
    }
}
