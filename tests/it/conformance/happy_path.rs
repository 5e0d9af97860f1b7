//! The happy path (scenarios HP).

use super::*;
use crate::support::{Database, calls_of, invoked, takes};

mod hp_01 {
    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
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
            takes(100).await;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_01_a_parents_next_step_waits_for_its_child() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
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
        calls_of(&root).expect(
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

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
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
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            scope.launch(Grandchild).await?;
            Ok(())
        }

        #[step(name = "2")]
        async fn two(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct GrandchildHandler;

    #[saga(name = "grandchild-handler")]
    #[subscribes(Grandchild)]
    impl GrandchildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            takes(200).await;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Grandchild) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_02_the_same_two_levels_deep() -> Result<()> {
        let db = Database::new().await;
        let scoop = db
            .scoop()
            .only::<RootHandler>()
            .only::<ChildHandler>()
            .only::<GrandchildHandler>()
            .start()
            .await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
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
        calls_of(&root).expect(
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

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            scope.launch(Child).await?;
            scope.launch(Child2).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            Ok(())
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
            takes(100).await;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child) -> Result<()> {
            invoked(scope);
            Ok(())
        }
    }

    #[derive(Default)]
    struct ChildHandler2;

    #[saga(name = "child-handler-2")]
    #[subscribes(Child2)]
    impl ChildHandler2 {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Child2) -> Result<()> {
            invoked(scope);
            takes(300).await;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn hp_03_two_messages_of_one_step_are_waited_for() -> Result<()> {
        let db = Database::new().await;
        let scoop =
            db.scoop().only::<RootHandler>().only::<ChildHandler1>().only::<ChildHandler2>().start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        let history = db.history().await;
        let calls = calls_of(&root);
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
        assert_eq!(calls.len(), 6);

        Ok(())
    }
}
