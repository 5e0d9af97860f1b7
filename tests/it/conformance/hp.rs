//! HP: the happy path.

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
        let scoop = db
            .scoop()
            .only::<RootHandler>()
            .only::<ChildHandler>()
            .start()
            .await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.wait().await?, Outcome::Committed);

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
