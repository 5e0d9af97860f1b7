//! Loops (scenarios LP).

use super::*;
use crate::support::{handled, invoked};

mod lp_01 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "loop-step")]
        async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(if scope.iteration() < 2 { Next::Repeat } else { Next::Continue })
        }

        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lp_01_repeating_counts_iterations() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler loop-step next=0
            M0 SUSPENDED root-handler loop-step next=0
            M0 SUSPENDED root-handler loop-step next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/loop-step it=0
            invoke root-handler/loop-step it=1
            invoke root-handler/loop-step it=2
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod lp_02 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "immediate-continue")]
        async fn immediate_continue(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            Ok(Next::Continue)
        }

        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lp_02_to_continue_at_once_is_an_ordinary_step() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler immediate-continue next=1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/immediate-continue it=0
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod lp_03 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "loop-step")]
        async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(if scope.iteration() < 1 { Next::Repeat } else { Next::Continue })
        }

        step "1" one => done();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => takes_ms(50);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lp_03_each_iteration_waits_for_its_own_children() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

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
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/loop-step it=0
            invoke child-handler/0
            invoke root-handler/loop-step it=1
            invoke child-handler/0
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod lp_04 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "step-with-children" step_with_children [rollback = undo, on_child_failure = handle_step_with_children] => launches(Child);
        rollback undo => done();

        async fn handle_step_with_children(
            &self,
            scope: &mut Scope<'_>,
            _: &Root,
            failure: &Failure,
        ) -> Result<()> {
            let before = handled(scope);
            if before > 0 {
                return Err(Error::failure(failure.clone()));
            }
            scope.launch(Child).await?;
            Ok(())
        }
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => fails(RuntimeException("Simulated child failure"));
    }

    /// Unlike in the reference, the failure that the handler had handled is over (W-01): the second
    /// call, and the exception it passes on, know of the second child only.
    #[tokio::test(flavor = "multi_thread")]
    async fn lp_04_a_child_failure_handler_that_emits_anew_is_called_again() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler step-with-children
            M0 SUSPENDED root-handler step-with-children
            M1 SEEN child-handler ·
            M1 ROLLING_BACK child-handler 0 exc=RTE(Simulated child failure)@child-handler
            M1 ROLLED_BACK child-handler RB(0[0,])
            M2 EMITTED root-handler step-with-children
            M0 SUSPENDED root-handler step-with-children cfhi=0
            M2 SEEN child-handler ·
            M2 ROLLING_BACK child-handler 0
            M2 ROLLED_BACK child-handler RB(0[0,])
            M0 ROLLING_BACK root-handler step-with-children cfhi=1 exc=CRB(step-with-children)@root-handler[=row 11]
            M2 ROLLBACK_EMITTED root-handler RBC(step-with-children[0,0])
            M0 SUSPENDED root-handler RBC(step-with-children[0,0])
            M1 ROLLBACK_EMITTED root-handler RBC(step-with-children[0,])
            M0 SUSPENDED root-handler RBC(step-with-children[0,])
            M0 SUSPENDED root-handler RB(step-with-children[0,])
            M0 ROLLED_BACK root-handler RB(step-with-children[0,])",
);
        run.calls().expect(
            "invoke root-handler/step-with-children it=0
            invoke child-handler/0
            hcf root-handler/step-with-children cfhi=0 next=Continue
            invoke child-handler/0
            hcf root-handler/step-with-children cfhi=1 next=Continue
            rollback root-handler/step-with-children",
        );

        Ok(())
    }
}
mod lp_05 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        #[step(name = "loop-step", rollback = undo)]
        async fn loop_step(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            invoked(scope);
            match scope.iteration() {
                0 | 1 => Ok(Next::Repeat),
                _ => Err(SIMULATED.into()),
            }
        }

        rollback undo => done();
    }

    /// Unlike in the reference, a compensation gets the iteration of the instance it undoes (W-38).
    #[tokio::test(flavor = "multi_thread")]
    async fn lp_05_a_failure_in_the_middle_of_a_loop() -> Result<()> {
        let run = Run::rolls_back((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler loop-step next=0
            M0 SUSPENDED root-handler loop-step next=0
            M0 ROLLING_BACK root-handler loop-step
            M0 SUSPENDED root-handler RBC(loop-step[1,])
            M0 SUSPENDED root-handler RB(loop-step[1,])
            M0 SUSPENDED root-handler RBC(loop-step[0,])
            M0 SUSPENDED root-handler RB(loop-step[0,])
            M0 ROLLED_BACK root-handler RB(loop-step[0,])",
        );
        run.calls().expect(
            "invoke root-handler/loop-step it=0
            invoke root-handler/loop-step it=1
            invoke root-handler/loop-step it=2
            rollback root-handler/loop-step it=1
            rollback root-handler/loop-step it=0",
        );

        Ok(())
    }
}
