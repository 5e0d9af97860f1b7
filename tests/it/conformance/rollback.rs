//! The rollback path (scenarios RB).

use super::*;
use crate::support::{Database, calls_of, compensated, handled, invoked, takes};

mod rb_01 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo, on_child_failure = rethrow)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Err(SIMULATED.into())
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

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_01_a_failure_in_the_first_step_leaves_nothing() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 ROLLING_BACK root-handler 0 exc=RTE(Simulated failure to test rollback)@root-handler
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls_of(&root).expect("invoke root-handler/0");
        let messages = db.texts("SELECT topic::text FROM scoop.message").await;
        assert_eq!(messages, ["root-topic"]);

        Ok(())
    }
}
mod rb_02 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo, on_child_failure = rethrow)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1", rollback = undo, on_child_failure = rethrow)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Err(SIMULATED.into())
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

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_02_a_failure_in_the_second_step_rolls_back_the_first() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M0 ROLLING_BACK root-handler 1 exc=RTE(…)@root-handler
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 5]
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        let messages = db.texts("SELECT topic::text FROM scoop.message ORDER BY topic").await;
        assert_eq!(messages, ["child-topic", "root-topic"]);

        Ok(())
    }
}
mod rb_03 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo, on_child_failure = rethrow)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
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
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_03_a_child_that_fails_compensates_before_its_parent() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0 next=1
            M1 ROLLING_BACK child-handler 1 exc=RTE(…)@child-handler
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 SUSPENDED child-handler RB(0[0,])
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 ROLLING_BACK root-handler 0 cfhi=0 exc=CRB(0)@root-handler[=row 7]
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 11]
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            invoke child-handler/1
            rollback child-handler/0
            hcf root-handler/0 cfhi=0 next=Continue
            rollback root-handler/0",
        );

        Ok(())
    }
}
mod rb_04 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0", rollback = undo)]
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

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_04_a_child_that_had_committed_is_undone_first() -> Result<()> {
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
            M1 SUSPENDED child-handler 0 next=1
            M1 SUSPENDED child-handler 1
            M1 COMMITTED child-handler 1
            M0 ROLLING_BACK root-handler 1 exc=RTE(…)@root-handler
            M1 ROLLBACK_EMITTED root-handler RBC(0[0,]) exc=PSS@root-handler[=row 9]
            M0 SUSPENDED root-handler RBC(0[0,])
            M1 ROLLING_BACK child-handler · exc==row 10
            M1 SUSPENDED child-handler RBC(1[0,])
            M1 SUSPENDED child-handler RB(1[0,])
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 SUSPENDED child-handler RB(0[0,])
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/0
            invoke child-handler/0
            invoke child-handler/1
            invoke root-handler/1
            rollback child-handler/1
            rollback child-handler/0
            rollback root-handler/0",
        );

        Ok(())
    }
}
mod rb_05 {
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
    struct ChildHandler1;

    #[saga(name = "child-handler-1")]
    #[subscribes(Child)]
    impl ChildHandler1 {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            scope.launch(Grandchild).await?;
            Ok(())
        }

        #[step(name = "2", rollback = undo)]
        async fn two(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler2;

    #[saga(name = "child-handler-2")]
    #[subscribes(Child)]
    impl ChildHandler2 {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct GrandchildHandler;

    #[saga(name = "grandchild-handler")]
    #[subscribes(Grandchild)]
    impl GrandchildHandler {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            takes(200).await;
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Grandchild, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_05_of_two_siblings_three_levels_deep_one_fails() -> Result<()> {
        let db = Database::new().await;
        let scoop = db
            .scoop()
            .only::<RootHandler>()
            .only::<ChildHandler1>()
            .only::<ChildHandler2>()
            .only::<GrandchildHandler>()
            .start()
            .await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        let history = db.history().await;
        let calls = calls_of(&root);
        history.of(&["root-handler", "child-handler-1", "grandchild-handler"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1
            M0 SUSPENDED root-handler 1
            M1 SEEN child-handler-1 ·
            M1 SUSPENDED child-handler-1 0 next=1
            M2 EMITTED child-handler-1 1
            M1 SUSPENDED child-handler-1 1 next=2
            M2 SEEN grandchild-handler ·
            M2 SUSPENDED grandchild-handler 0 next=1
            M2 SUSPENDED grandchild-handler 1
            M2 COMMITTED grandchild-handler 1
            M1 SUSPENDED child-handler-1 2
            M1 COMMITTED child-handler-1 2
            M0 ROLLING_BACK root-handler 1 cfhi=0 exc=‡CRB(1)@root-handler[RTE(…)@child-handler-2]
            M1 ROLLBACK_EMITTED root-handler RBC(1[0,]) exc=‡PSS@root-handler[=row 16]
            M0 SUSPENDED root-handler RBC(1[0,])
            M1 ROLLING_BACK child-handler-1 · exc=‡=row 17
            M1 SUSPENDED child-handler-1 RBC(2[0,])
            M1 SUSPENDED child-handler-1 RB(2[0,])
            M2 ROLLBACK_EMITTED child-handler-1 RBC(1[0,]) exc=‡PSS@child-handler-1[=row 17]
            M1 SUSPENDED child-handler-1 RBC(1[0,])
            M2 ROLLING_BACK grandchild-handler · exc=‡=row 22
            M2 SUSPENDED grandchild-handler RBC(1[0,])
            M2 SUSPENDED grandchild-handler RB(1[0,])
            M2 SUSPENDED grandchild-handler RBC(0[0,])
            M2 SUSPENDED grandchild-handler RB(0[0,])
            M2 ROLLED_BACK grandchild-handler RB(0[0,])
            M1 SUSPENDED child-handler-1 RB(1[0,])
            M1 SUSPENDED child-handler-1 RBC(0[0,])
            M1 SUSPENDED child-handler-1 RB(0[0,])
            M1 ROLLED_BACK child-handler-1 RB(0[0,])
            M0 SUSPENDED root-handler RB(1[0,])
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls.of(&["root-handler", "child-handler-1", "grandchild-handler"]).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke child-handler-1/0
            invoke child-handler-1/1
            invoke grandchild-handler/0
            invoke grandchild-handler/1
            invoke child-handler-1/2
            hcf root-handler/1 cfhi=0 next=Continue
            rollback child-handler-1/2
            rollback grandchild-handler/1
            rollback grandchild-handler/0
            rollback child-handler-1/1
            rollback child-handler-1/0
            rollback root-handler/1
            rollback root-handler/0",
        );
        history.of(&["root-handler", "child-handler-2"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1
            M0 SUSPENDED root-handler 1
            M1 SEEN child-handler-2 ·
            M1 SUSPENDED child-handler-2 0 next=1
            M1 ROLLING_BACK child-handler-2 1 exc=‡RTE(Simulated failure to test rollback)@child-handler-2
            M1 SUSPENDED child-handler-2 RBC(0[0,])
            M1 SUSPENDED child-handler-2 RB(0[0,])
            M1 ROLLED_BACK child-handler-2 RB(0[0,])
            M0 ROLLING_BACK root-handler 1 cfhi=0
            M1 ROLLBACK_EMITTED root-handler RBC(1[0,])
            M0 SUSPENDED root-handler RBC(1[0,])
            M0 SUSPENDED root-handler RB(1[0,])
            M0 SUSPENDED root-handler RBC(0[0,])
            M0 SUSPENDED root-handler RB(0[0,])
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        calls.of(&["root-handler", "child-handler-2"]).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke child-handler-2/0
            invoke child-handler-2/1
            rollback child-handler-2/0
            hcf root-handler/1
            rollback root-handler/1
            rollback root-handler/0",
        );
        assert_eq!(calls.len(), 18);

        Ok(())
    }
}
mod rb_06 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", on_child_failure = rethrow)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        async fn rethrow(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            handled(scope);
            Err(Error::failure(failure.clone()))
        }
    }

    #[derive(Default)]
    struct ChildHandler1;

    #[saga(name = "child-handler-1")]
    #[subscribes(Child)]
    impl ChildHandler1 {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", on_child_failure = rethrow)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            scope.launch(Grandchild).await?;
            Ok(())
        }

        #[step(name = "2", rollback = undo)]
        async fn two(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn rethrow(&self, scope: &mut Scope<'_>, _: &Child, failure: &Failure) -> Result<()> {
            handled(scope);
            Err(Error::failure(failure.clone()))
        }
    }

    #[derive(Default)]
    struct ChildHandler2;

    #[saga(name = "child-handler-2")]
    #[subscribes(Child)]
    impl ChildHandler2 {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Err(SIMULATED.into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Child, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct GrandchildHandler;

    #[saga(name = "grandchild-handler")]
    #[subscribes(Grandchild)]
    impl GrandchildHandler {
        #[step(name = "0", rollback = undo_zero)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            takes(200).await;
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Grandchild, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }

        async fn undo_zero(&self, scope: &mut Scope<'_>, _: &Grandchild, _: &Failure) -> Result<()> {
            compensated(scope);
            Err(IllegalStateException("Rollback failure").into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_06_the_same_but_a_compensation_fails_in_the_grandchild() -> Result<()> {
        let db = Database::new().await;
        let scoop = db
            .scoop()
            .only::<RootHandler>()
            .only::<ChildHandler1>()
            .only::<ChildHandler2>()
            .only::<GrandchildHandler>()
            .start()
            .await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RollbackFailed(_)));

        let history = db.history().await;
        let calls = calls_of(&root);
        history.of(&["root-handler", "child-handler-1", "grandchild-handler"]).expect(
"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1
            M0 SUSPENDED root-handler 1
            M1 SEEN child-handler-1 ·
            M1 SUSPENDED child-handler-1 0 next=1
            M2 EMITTED child-handler-1 1
            M1 SUSPENDED child-handler-1 1 next=2
            M2 SEEN grandchild-handler ·
            M2 SUSPENDED grandchild-handler 0 next=1
            M2 SUSPENDED grandchild-handler 1
            M2 COMMITTED grandchild-handler 1
            M1 SUSPENDED child-handler-1 2
            M1 COMMITTED child-handler-1 2
            M0 ROLLING_BACK root-handler 1 cfhi=0 exc=CRB(1)@root-handler[RTE(…)@child-handler-2]
            M1 ROLLBACK_EMITTED root-handler RBC(1[0,]) exc=PSS@root-handler[=row 16]
            M0 SUSPENDED root-handler RBC(1[0,])
            M1 ROLLING_BACK child-handler-1 · exc==row 17
            M1 SUSPENDED child-handler-1 RBC(2[0,])
            M1 SUSPENDED child-handler-1 RB(2[0,])
            M2 ROLLBACK_EMITTED child-handler-1 RBC(1[0,]) exc=PSS@child-handler-1[=row 17]
            M1 SUSPENDED child-handler-1 RBC(1[0,])
            M2 ROLLING_BACK grandchild-handler · exc==row 22
            M2 SUSPENDED grandchild-handler RBC(1[0,])
            M2 SUSPENDED grandchild-handler RB(1[0,])
            M2 SUSPENDED grandchild-handler RBC(0[0,])
            M2 ROLLBACK_FAILED grandchild-handler RB(0[0,]) exc=java.lang.IllegalStateException(Rollback failure)@grandchild-handler
            M1 ROLLBACK_FAILED child-handler-1 RBC(1[0,]) cfhi=0 exc=CRF(RBC(1[0,]))@child-handler-1[=row 28,=row 17]
            M0 ROLLBACK_FAILED root-handler RBC(1[0,]) cfhi=0 exc=CRF(RBC(1[0,]))@root-handler[=row 29]",
);
        calls.of(&["root-handler", "child-handler-1", "grandchild-handler"]).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke child-handler-1/0
            invoke child-handler-1/1
            invoke grandchild-handler/0
            invoke grandchild-handler/1
            invoke child-handler-1/2
            hcf root-handler/1 cfhi=0 next=Continue
            rollback child-handler-1/2
            rollback grandchild-handler/1
            rollback grandchild-handler/0
            hcf child-handler-1/1 cfhi=0 next=Continue
            hcf root-handler/1 cfhi=0 next=Continue",
        );
        history.of(&["root-handler", "child-handler-2"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1
            M0 SUSPENDED root-handler 1
            M1 SEEN child-handler-2 ·
            M1 SUSPENDED child-handler-2 0 next=1
            M1 ROLLING_BACK child-handler-2 1 exc=RTE(…)@child-handler-2
            M1 SUSPENDED child-handler-2 RBC(0[0,])
            M1 SUSPENDED child-handler-2 RB(0[0,])
            M1 ROLLED_BACK child-handler-2 RB(0[0,])
            M0 ROLLING_BACK root-handler 1 cfhi=0
            M1 ROLLBACK_EMITTED root-handler RBC(1[0,])
            M0 SUSPENDED root-handler RBC(1[0,])
            M0 ROLLBACK_FAILED root-handler RBC(1[0,]) cfhi=0",
        );
        calls.of(&["root-handler", "child-handler-2"]).expect(
            "invoke root-handler/0
            invoke root-handler/1
            invoke child-handler-2/0
            invoke child-handler-2/1
            rollback child-handler-2/0
            hcf root-handler/1
            hcf root-handler/1",
        );
        assert_eq!(calls.len(), 16);

        Ok(())
    }
}
