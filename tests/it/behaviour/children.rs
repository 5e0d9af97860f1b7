//! What becomes of a run whose children fail.

use super::*;
use crate::support::{Database, Gate, calls_of, compensated, eventually, handled, invoked};

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
    async fn what_a_handler_emits_is_waited_for_and_undone() -> Result<()> {
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
    async fn a_child_that_cannot_roll_back_keeps_its_parent_from_it() -> Result<()> {
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
    async fn a_message_that_nobody_handles_is_not_waited_for() -> Result<()> {
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

    /// W-51: whose message came first, or whose saga is named first, does not matter.
    #[tokio::test(flavor = "multi_thread")]
    async fn failures_of_several_children_are_ordered_by_the_time_they_turned_back() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let scoop = db.scoop().only::<RootHandler>().only::<SlowHandler>().only::<ChildHandler2>();
        let scoop = scoop.provide(SlowHandler { gate: gate.clone() }).start().await?;
        let root = scoop.launch(Root).await?;
        gate.arrivals(1).await;
        eventually("the other child turned back", async || db.history().await.count("ROLLING_BACK") == 1)
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
