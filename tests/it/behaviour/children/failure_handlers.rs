//! Handlers of child failures: they may accept the failure, fail themselves, or jump.

use super::*;

handler! {
    ChildHandler: "child-handler" on Child;
    step "0" zero => fails(RuntimeException("no chairs left"));
}

mod ignored {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle_zero] => launches(Child);
        step "1" one => done();

        async fn handle_zero(&self, scope: &mut Scope<'_>, _: &Root, failure: &Failure) -> Result<()> {
            handled(scope);
            assert_eq!(failure.root_causes()[0].message, "no chairs left");
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failure_that_is_handled_is_over() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle_zero] => launches(Child);
        on_child_failure handle_zero => accepts();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_failure_handled_in_the_last_step_lets_the_run_commit() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = handle_zero] => launches(Child);
        step "1" one => done();
        rollback undo => done();
        on_child_failure handle_zero => acts(fails(IllegalStateException("cannot do without chairs")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_fail_with_an_error_of_its_own() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [on_child_failure = handle_zero] => launches(Child);
        step "1" one => done();
        step "2" two => done();

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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_say_where_to_go() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_have_the_step_repeated() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
            "invoke root-handler/0
            invoke child-handler/0
            hcf root-handler/0
            invoke root-handler/0 it=1",
        );
        Ok(())
    }
}
