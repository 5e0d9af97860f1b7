//! Handlers of child failures that launch something else instead.

use super::*;

mod emitting_anew {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = handle_zero] => launches(Child);
        step "1" one => fails(SIMULATED);
        rollback undo => done();
        on_child_failure handle_zero => acts(launches(Child2));
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => fails(RuntimeException("no chairs left"));
    }

    handler! {
        ChildHandler2: "child-handler-2" on Child2;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_of_a_failure_handler_are_waited_for_and_undone() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler, ChildHandler2), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle_zero] => launches(Child);
        step "1" one => done();

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

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => fails(RuntimeException("first"));
    }

    handler! {
        ChildHandler2: "child-handler-2" on Child2;
        step "0" zero => fails(RuntimeException("second"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_failure_calls_the_handler_again_with_that_failure_only() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler, ChildHandler2), Root).await?;

        run.history().await.expect(
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
