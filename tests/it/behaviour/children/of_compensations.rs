//! Children of compensations, and children that cannot be undone.

use super::*;

mod compensation_emits {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            scope.launch(Child).await?;
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

    /// W-16. The reference ignores the failure.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_whose_message_fails_has_failed() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M0 ROLLING_BACK root-handler 1
            M0 SUSPENDED root-handler RBC(0[0,])
            M1 EMITTED root-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 ROLLBACK_FAILED root-handler RB(0[0,]) cfhi=0 exc=CRB(RB(0[0,]))@root-handler[=row 9]",
        );
        Ok(())
    }
}

mod compensation_waits {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", rollback = undo_one)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "2")]
        async fn two(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn undo_one(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            scope.launch(Child).await?;
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
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_waits_for_its_message_and_the_next_one_for_both() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M0 SUSPENDED root-handler 1 next=2
            M0 ROLLING_BACK root-handler 2
            M0 SUSPENDED root-handler RBC(1[0,])
            M1 EMITTED root-handler RB(1[0,])
            M0 SUSPENDED root-handler RB(1[0,])
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0
            M1 COMMITTED child-handler 0
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        Ok(())
    }
}

mod compensation_handled {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo_zero, on_child_failure = handle_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
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
    async fn a_handler_may_ignore_the_failure_of_a_compensations_message() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M0 ROLLING_BACK root-handler 1
            M0 SUSPENDED root-handler RBC(0[0,])
            M1 EMITTED root-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,]) cfhi=0
            M0 ROLLED_BACK root-handler RB(0[0,]) cfhi=0",
        );
        Ok(())
    }
}

mod child_not_undone {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", rollback = undo, on_child_failure = rethrow)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn rethrow(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            handled(scope);
            Err(Error::failure(failure.clone()))
        }
    }

    #[derive(Default)]
    struct ChildHandler;

    #[saga(name = "child-handler")]
    #[subscribes(Child)]
    impl ChildHandler {
        #[step(name = "0", rollback = undo_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(RuntimeException("no chairs left").into())
        }

        async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Err(IllegalStateException("the chairs are glued").into())
        }
    }

    /// W-17: the handler is called on both paths.
    #[tokio::test(flavor = "multi_thread")]
    async fn failed_rollback_of_a_child_blocks_that_of_its_parent() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

        db.history().await.expect(
"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1
            M0 SUSPENDED root-handler 1
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0 next=1
            M1 ROLLING_BACK child-handler 1 exc=RTE(no chairs left)@child-handler
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 ROLLBACK_FAILED child-handler RB(0[0,]) exc=IllegalStateException(the chairs are glued)@child-handler
            M0 ROLLING_BACK root-handler 1 cfhi=0 exc=CRF(1)@root-handler[=row 10,CRB@root-handler[=row 8]]
            M0 ROLLBACK_FAILED root-handler RBC(1[0,]) cfhi=0 exc=CRF(1)@root-handler[=row 10,=row 11]",
);
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke child-handler/0
            invoke child-handler/1
            rollback child-handler/0
            hcf root-handler/1
            hcf root-handler/1",
        );
        Ok(())
    }
}
