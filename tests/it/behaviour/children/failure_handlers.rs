//! Handlers of child failures: they may accept the failure, fail themselves, or jump.

use super::*;

mod ignored {
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
            handled(scope);
            assert_eq!(failure.root_causes()[0].message, "no chairs left");
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failure_that_is_handled_is_over() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0 exc=RTE(no chairs left)@child-handler
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler 0 next=1 cfhi=0
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            hcf root-handler/0
            invoke root-handler/1",
        );
        Ok(())
    }
}

mod ignored_in_the_last_step {
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

        async fn handle_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            handled(scope);
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failure_handled_in_the_last_step_lets_the_run_commit() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler 0 cfhi=0
            M0 COMMITTED root-handler 0 cfhi=0",
        );
        Ok(())
    }
}

mod own_error {
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
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn handle_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            handled(scope);
            Err(IllegalStateException("cannot do without chairs").into())
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_fail_with_an_error_of_its_own() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
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
            M0 ROLLING_BACK root-handler 0 cfhi=0 exc=IllegalStateException(cannot do without chairs)@root-handler
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 8]
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
);
        Ok(())
    }
}

mod jumping {
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

        #[step(name = "2")]
        async fn two(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn handle_zero(
            &self,
            scope: &mut Scope<'_>,
            _: &Root,
            _: &Failure,
        ) -> Result<Next<RootHandlerStep>> {
            handled(scope);
            Ok(Next::goto(RootHandlerStep::Two))
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_say_where_to_go() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
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
            M0 SUSPENDED root-handler 0 next=2 cfhi=0
            M0 SUSPENDED root-handler 2
            M0 COMMITTED root-handler 2",
        );
        Ok(())
    }
}

mod repeating {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", on_child_failure = handle_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let before = invoked(scope);
            if before == 0 {
                scope.launch(Child).await?;
            }
            Ok(())
        }

        async fn handle_zero(
            &self,
            scope: &mut Scope<'_>,
            _: &Root,
            _: &Failure,
        ) -> Result<Next<RootHandlerStep>> {
            handled(scope);
            Ok(Next::Repeat)
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_have_the_step_repeated() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler 0 next=0 cfhi=0
            M0 SUSPENDED root-handler 0
            M0 COMMITTED root-handler 0",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            hcf root-handler/0
            invoke root-handler/0 it=1",
        );
        Ok(())
    }
}
