//! Jumps to another step (scenarios GT).

use super::*;
use crate::support::{Database, calls_of, compensated, invoked, takes};

mod gt_01 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "step-0")]
        async fn step_0(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(Next::goto(RootHandlerStep::Step2))
        }

        #[step(name = "step-1")]
        async fn step_1(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "step-2")]
        async fn step_2(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_01_a_jump_forward_skips_steps() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler step-0 next=2
            M0 SUSPENDED root-handler step-2
            M0 COMMITTED root-handler step-2",
        );
        calls_of(&root).expect(
            "invoke root-handler/step-0
            invoke root-handler/step-2",
        );

        Ok(())
    }
}
mod gt_02 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "step-A")]
        async fn step_a(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "step-B")]
        async fn step_b(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "step-C")]
        async fn step_c(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            Ok(if before == 0 { Next::goto(RootHandlerStep::StepA) } else { Next::Continue })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_02_a_jump_backward_starts_counting_anew() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler step-A next=1
            M0 SUSPENDED root-handler step-B next=2
            M0 SUSPENDED root-handler step-C next=0
            M0 SUSPENDED root-handler step-A next=1
            M0 SUSPENDED root-handler step-B next=2
            M0 SUSPENDED root-handler step-C
            M0 COMMITTED root-handler step-C",
        );
        calls_of(&root).expect(
            "invoke root-handler/step-A
            invoke root-handler/step-B
            invoke root-handler/step-C
            invoke root-handler/step-A
            invoke root-handler/step-B
            invoke root-handler/step-C",
        );

        Ok(())
    }
}
mod gt_03 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "self-goto-step")]
        async fn self_goto_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(match scope.iteration() {
                0 | 1 => Next::goto(RootHandlerStep::SelfGotoStep),
                _ => Next::Continue,
            })
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_03_a_jump_to_oneself_repeats() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler self-goto-step next=0
            M0 SUSPENDED root-handler self-goto-step next=0
            M0 SUSPENDED root-handler self-goto-step next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        calls_of(&root).expect(
            "invoke root-handler/self-goto-step it=0
            invoke root-handler/self-goto-step it=1
            invoke root-handler/self-goto-step it=2
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod gt_04 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "step-A", rollback = undo)]
        async fn step_a(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            Ok(if before == 0 { Next::Continue } else { Next::goto(RootHandlerStep::StepC) })
        }

        #[step(name = "step-B", rollback = undo)]
        async fn step_b(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "step-C", rollback = undo)]
        async fn step_c(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            if before == 0 { Ok(Next::goto(RootHandlerStep::StepA)) } else { Err(SIMULATED.into()) }
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            compensated(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_04_rollback_follows_the_executed_steps_not_the_definition() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler step-A next=1
            M0 SUSPENDED root-handler step-B next=2
            M0 SUSPENDED root-handler step-C next=0
            M0 SUSPENDED root-handler step-A next=2
            M0 ROLLING_BACK root-handler step-C
            M0 SUSPENDED root-handler RBC(step-A[1,])
            M0 SUSPENDED root-handler RB(step-A[1,])
            M0 SUSPENDED root-handler RBC(step-C[0,])
            M0 SUSPENDED root-handler RB(step-C[0,])
            M0 SUSPENDED root-handler RBC(step-B[0,])
            M0 SUSPENDED root-handler RB(step-B[0,])
            M0 SUSPENDED root-handler RBC(step-A[0,])
            M0 SUSPENDED root-handler RB(step-A[0,])
            M0 ROLLED_BACK root-handler RB(step-A[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/step-A
            invoke root-handler/step-B
            invoke root-handler/step-C
            invoke root-handler/step-A
            invoke root-handler/step-C
            rollback root-handler/step-A
            rollback root-handler/step-C
            rollback root-handler/step-B
            rollback root-handler/step-A",
        );

        Ok(())
    }
}
mod gt_05 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "loop-step", rollback = undo)]
        async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(if scope.iteration() < 1 { Next::Repeat } else { Next::Continue })
        }

        #[step(name = "failing-step", rollback = undo)]
        async fn failing_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
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
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            takes(50).await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_05_children_are_undone_with_their_iteration() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler loop-step
            M0 SUSPENDED root-handler loop-step next=0
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0
            M1 COMMITTED child-handler 0
            M2 EMITTED root-handler loop-step
            M0 SUSPENDED root-handler loop-step next=1
            M2 SEEN child-handler ·
            M2 SUSPENDED child-handler 0
            M2 COMMITTED child-handler 0
            M0 ROLLING_BACK root-handler failing-step
            M2 ROLLBACK_EMITTED root-handler RBC(loop-step[1,])
            M0 SUSPENDED root-handler RBC(loop-step[1,])
            M2 ROLLING_BACK child-handler ·
            M2 SUSPENDED child-handler RBC(0[0,])
            M2 SUSPENDED child-handler RB(0[0,])
            M2 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(loop-step[1,])
            M1 ROLLBACK_EMITTED root-handler RBC(loop-step[0,])
            M0 SUSPENDED root-handler RBC(loop-step[0,])
            M1 ROLLING_BACK child-handler ·
            M1 SUSPENDED child-handler RBC(0[0,])
            M1 SUSPENDED child-handler RB(0[0,])
            M1 ROLLED_BACK child-handler RB(0[0,])
            M0 SUSPENDED root-handler RB(loop-step[0,])
            M0 ROLLED_BACK root-handler RB(loop-step[0,])",
        );
        calls_of(&root).expect(
            "invoke root-handler/loop-step
            invoke child-handler/0
            invoke root-handler/loop-step it=1
            invoke child-handler/0
            invoke root-handler/failing-step
            rollback root-handler/loop-step it=1
            rollback root-handler/loop-step it=0",
        );

        Ok(())
    }
}
