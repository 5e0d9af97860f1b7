//! Jumps to another step (scenarios GT).

use super::*;
use crate::support::invoked;

mod gt_01 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "step-0")]
        async fn step_0(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(Next::goto(RootHandlerStep::Step2))
        }

        step "step-1" step_1 => done();
        step "step-2" step_2 => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_01_a_jump_forward_skips_steps() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler step-0 next=2
            M0 SUSPENDED root-handler step-2
            M0 COMMITTED root-handler step-2",
        );
        run.calls().expect(
            "invoke root-handler/step-0
            invoke root-handler/step-2",
        );

        Ok(())
    }
}
mod gt_02 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "step-A" step_a => done();
        step "step-B" step_b => done();

        #[step(name = "step-C")]
        async fn step_c(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            Ok(if before == 0 { Next::goto(RootHandlerStep::StepA) } else { Next::Continue })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_02_a_jump_backward_starts_counting_anew() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "self-goto-step")]
        async fn self_goto_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(match scope.iteration() {
                0 | 1 => Next::goto(RootHandlerStep::SelfGotoStep),
                _ => Next::Continue,
            })
        }

        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_03_a_jump_to_oneself_repeats() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler self-goto-step next=0
            M0 SUSPENDED root-handler self-goto-step next=0
            M0 SUSPENDED root-handler self-goto-step next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "step-A", rollback = undo)]
        async fn step_a(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            Ok(if before == 0 { Next::Continue } else { Next::goto(RootHandlerStep::StepC) })
        }

        step "step-B" step_b [rollback = undo] => done();

        #[step(name = "step-C", rollback = undo)]
        async fn step_c(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let before = invoked(scope);
            if before == 0 { Ok(Next::goto(RootHandlerStep::StepA)) } else { Err(SIMULATED.into()) }
        }

        rollback undo => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_04_rollback_follows_the_executed_steps_not_the_definition() -> Result<()> {
        let run = Run::rolls_back((RootHandler,), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "loop-step", rollback = undo)]
        async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(if scope.iteration() < 1 { Next::Repeat } else { Next::Continue })
        }

        step "failing-step" failing_step [rollback = undo] => fails(SIMULATED);
        rollback undo => done();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => takes_ms(50);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gt_05_children_are_undone_with_their_iteration() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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
