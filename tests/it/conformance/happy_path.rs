//! The happy path (scenarios HP).

use super::*;

handler! {
    ParentOfOne: "root-handler" on Root;
    step "0" zero => launches(Child);
    step "1" one => done();
}

mod hp_01 {
    use super::*;

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => takes_ms(100);
        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_01_a_parents_next_step_waits_for_its_child() -> Result<()> {
        let run = Run::commits((ParentOfOne, ChildHandler), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · · L=[R]
            M0 SEEN root-handler · L=[R,a]
            M1 EMITTED root-handler 0 L=[R,a]
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler · L=[R,a,b]
            M1 SUSPENDED child-handler 0 next=1
            M1 SUSPENDED child-handler 1
            M1 COMMITTED child-handler 1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/0
            invoke child-handler/0
            invoke child-handler/1
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod hp_02 {
    use super::*;

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => done();
        step "1" one => launches(Grandchild);
        step "2" two => done();
    }

    handler! {
        GrandchildHandler: "grandchild-handler" on Grandchild;
        step "0" zero => takes_ms(200);
        step "1" one => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_02_the_same_two_levels_deep() -> Result<()> {
        let run = Run::commits((ParentOfOne, ChildHandler, GrandchildHandler), Root).await?;

        run.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler ·
            M1 SUSPENDED child-handler 0 next=1
            M2 EMITTED child-handler 1
            M1 SUSPENDED child-handler 1 next=2
            M2 SEEN grandchild-handler · L=[R,a,b,c]
            M2 SUSPENDED grandchild-handler 0 next=1
            M2 SUSPENDED grandchild-handler 1
            M2 COMMITTED grandchild-handler 1
            M1 SUSPENDED child-handler 2
            M1 COMMITTED child-handler 2
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        run.calls().expect(
            "invoke root-handler/0
            invoke child-handler/0
            invoke child-handler/1
            invoke grandchild-handler/0
            invoke grandchild-handler/1
            invoke child-handler/2
            invoke root-handler/1",
        );

        Ok(())
    }
}
mod hp_03 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => launches(Child).then(launches(Child2));
        step "1" one => done();
    }

    handler! {
        ChildHandler1: "child-handler-1" on Child;
        step "0" zero => takes_ms(100);
        step "1" one => done();
    }

    handler! {
        ChildHandler2: "child-handler-2" on Child2;
        step "0" zero => done();
        step "1" one => takes_ms(300);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_03_two_messages_of_one_step_are_waited_for() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler1, ChildHandler2), Root).await?;

        let history = run.history().await;
        let calls = run.calls();
        history.of(&["root-handler", "child-handler-1"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M2 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M1 SEEN child-handler-1 ·
            M1 SUSPENDED child-handler-1 0 next=1
            M1 SUSPENDED child-handler-1 1
            M1 COMMITTED child-handler-1 1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        calls.of(&["root-handler", "child-handler-1"]).expect(
            "invoke root-handler/0
            invoke child-handler-1/0
            invoke child-handler-1/1
            invoke root-handler/1",
        );
        history.of(&["root-handler", "child-handler-2"]).expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler 0
            M2 EMITTED root-handler 0
            M0 SUSPENDED root-handler 0 next=1
            M2 SEEN child-handler-2 ·
            M2 SUSPENDED child-handler-2 0 next=1
            M2 SUSPENDED child-handler-2 1
            M2 COMMITTED child-handler-2 1
            M0 SUSPENDED root-handler 1
            M0 COMMITTED root-handler 1",
        );
        calls.of(&["root-handler", "child-handler-2"]).expect(
            "invoke root-handler/0
            invoke child-handler-2/0
            invoke child-handler-2/1
            invoke root-handler/1",
        );
        assert_eq!(calls.count(), 6);

        Ok(())
    }
}
