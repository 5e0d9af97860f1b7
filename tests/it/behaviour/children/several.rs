//! None, one or several handlers and children.

use super::*;

mod nobody_handles {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child);
        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unhandled_message_is_not_waited_for() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child);
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();
    }

    handler! {
        SecondHandler: "second-handler" on Child;
        step "0" zero => fails(RuntimeException("no chairs left"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_handler_that_succeeded_is_undone_when_its_sibling_fails() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler, SecondHandler), Root).await?;

        let history = run.history().await;
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child).then(launches(Child2));
    }

    handler! {
        ChildHandler2: "child-handler-2" on Child2;
        step "0" zero => fails(RuntimeException("quick"));
    }

    handler! {
        SlowHandler(gate): "slow-handler" on Child;
        step "0" zero => at_gate().then(fails(RuntimeException("slow")));
    }

    /// W-51: neither the order of the messages nor that of the sagas matters.
    #[tokio::test(flavor = "multi_thread")]
    async fn failures_of_several_children_are_ordered_by_the_start_of_their_rollbacks() -> Result<()> {
        let gate = Gate::default();
        let run = Run::launch((RootHandler, SlowHandler { gate: gate.clone() }, ChildHandler2), Root).await?;
        gate.arrivals(1).await;
        eventually("the other child rolls back", async || run.history().await.count("ROLLING_BACK") == 1)
            .await;
        gate.open(1);
        let Outcome::RolledBack(failure) = run.root.ends().await? else {
            panic!("it did not roll back");
        };
        let messages: Vec<_> = failure.causes.iter().map(|cause| &*cause.message).collect();
        assert_eq!(messages, ["quick", "slow"], "{}", failure.report());
        Ok(())
    }
}
