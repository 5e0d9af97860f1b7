//! Children of compensations, and children that cannot be undone.

use super::*;

handler! {
    FailingChild: "child-handler" on Child;
    step "0" zero => fails(RuntimeException("no chairs left"));
}

mod compensation_emits {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo_zero] => done();
        step "1" one => fails(SIMULATED);
        rollback undo_zero => launches(Child);
    }

    /// W-16. The reference ignores the failure.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_whose_message_fails_has_failed() -> Result<()> {
        let run = Run::fails_to_roll_back((RootHandler, FailingChild), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo_one] => done();
        step "2" two => fails(SIMULATED);
        rollback undo => done();
        rollback undo_one => launches(Child);
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_compensation_waits_for_its_message_and_the_next_one_for_both() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo_zero, on_child_failure = handle_zero] => done();
        step "1" one => fails(SIMULATED);
        rollback undo_zero => launches(Child);
        on_child_failure handle_zero => accepts();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_may_ignore_the_failure_of_a_compensations_message() -> Result<()> {
        let run = Run::rolls_back((RootHandler, FailingChild), Root).await?;

        run.history().await.expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo, on_child_failure = rethrow] => launches(Child);
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo_zero] => done();
        step "1" one => fails(RuntimeException("no chairs left"));
        rollback undo_zero => fails(IllegalStateException("the chairs are glued"));
    }

    /// W-17: the handler is called on both paths.
    #[tokio::test(flavor = "multi_thread")]
    async fn failed_rollback_of_a_child_blocks_that_of_its_parent() -> Result<()> {
        let run = Run::fails_to_roll_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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
