//! The rollback path (scenarios RB).

use super::*;

handler! {
    ChildHandler2: "child-handler-2" on Child;
    step "0" zero [rollback = undo] => done();
    step "1" one => fails(SIMULATED);
    rollback undo => done();
}

mod rb_01 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = rethrow] => launches(Child).then(fails(SIMULATED));
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_01_a_failure_in_the_first_step_leaves_nothing() -> Result<()> {
        let run = Run::rolls_back((RootHandler,), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 ROLLING_BACK root-handler 0 exc=RTE(Simulated failure to test rollback)@root-handler
            M0 ROLLED_BACK root-handler RB(0[0,])",
        );
        run.calls().expect("invoke root-handler/0");
        let messages = run.db.texts("SELECT topic::text FROM scoop.message").await;
        assert_eq!(messages, ["root-topic"]);

        Ok(())
    }
}
mod rb_02 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = rethrow] => launches(Child);
        step "1" one [rollback = undo, on_child_failure = rethrow] => launches(Child).then(fails(SIMULATED));
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_02_a_failure_in_the_second_step_rolls_back_the_first() -> Result<()> {
        let run = Run::rolls_back((RootHandler,), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
            "invoke root-handler/0
            invoke root-handler/1
            rollback root-handler/0",
        );
        let messages = run.db.texts("SELECT topic::text FROM scoop.message ORDER BY topic").await;
        assert_eq!(messages, ["child-topic", "root-topic"]);

        Ok(())
    }
}
mod rb_03 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = rethrow] => launches(Child);
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done();
        step "1" one => fails(SIMULATED);
        rollback undo => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_03_a_child_that_fails_compensates_before_its_parent() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child);
        step "1" one => fails(SIMULATED);
        rollback undo => done();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo] => done();
        rollback undo => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_04_a_child_that_had_committed_is_undone_first() -> Result<()> {
        let run = Run::rolls_back((RootHandler, ChildHandler), Root).await?;

        run.history().await.expect(
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
        run.calls().expect(
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

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo, on_child_failure = rethrow] => launches(Child);
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    handler! {
        ChildHandler1: "child-handler-1" on Child;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo] => launches(Grandchild);
        step "2" two [rollback = undo] => done();
        rollback undo => done();
    }

    handler! {
        GrandchildHandler: "grandchild-handler" on Grandchild;
        step "0" zero [rollback = undo] => done();
        step "1" one [rollback = undo] => takes_ms(200);
        rollback undo => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_05_of_two_siblings_three_levels_deep_one_fails() -> Result<()> {
        let run =
            Run::rolls_back((RootHandler, ChildHandler1, ChildHandler2, GrandchildHandler), Root).await?;

        let history = run.history().await;
        let calls = run.calls();
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
        assert_eq!(calls.count(), 18);

        Ok(())
    }
}
mod rb_06 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => done();
        step "1" one [on_child_failure = rethrow] => launches(Child);
        on_child_failure rethrow => passes_on();
    }

    handler! {
        ChildHandler1: "child-handler-1" on Child;
        step "0" zero => done();
        step "1" one [on_child_failure = rethrow] => launches(Grandchild);
        step "2" two [rollback = undo] => done();
        rollback undo => done();
        on_child_failure rethrow => passes_on();
    }

    handler! {
        GrandchildHandler: "grandchild-handler" on Grandchild;
        step "0" zero [rollback = undo_zero] => done();
        step "1" one [rollback = undo] => takes_ms(200);
        rollback undo => done();
        rollback undo_zero => fails(IllegalStateException("Rollback failure"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rb_06_the_same_but_a_compensation_fails_in_the_grandchild() -> Result<()> {
        let run =
            Run::fails_to_roll_back((RootHandler, ChildHandler1, ChildHandler2, GrandchildHandler), Root)
                .await?;

        let history = run.history().await;
        let calls = run.calls();
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
        assert_eq!(calls.count(), 16);

        Ok(())
    }
}
