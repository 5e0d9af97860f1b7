//! Infrastructure failures below a step (scenarios IF).

use super::*;
use crate::support::{Database, calls_of, invoked};

mod if_01 {
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            let before = invoked(scope);
            assert_eq!(scope.attempt() as usize, before);
            match before {
                0 | 1 => Err(Error::infrastructure("the disk is full")),
                _ => Ok(()),
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn if_01_an_infrastructure_failure_is_retried_never_rolled_back() -> Result<()> {
        let db = Database::new().await;
        let soon = Duration::from_millis(20);
        let scoop = db.scoop().only::<RootHandler>().poll_interval(soon).start().await?;
        let root = scoop.launch(Root).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        db.history().await.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0
            M0 COMMITTED root-handler 0",
        );
        calls_of(&root).expect(&"invoke root-handler/0\n".repeat(3));
        Ok(())
    }
}

mod if_02 {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => fails(SIMULATED);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn if_02_a_business_failure_is_not_retried() -> Result<()> {
        let run = Run::rolls_back((RootHandler,), Root).await?;

        let history = run.history().await;
        assert_eq!((history.count("ROLLING_BACK"), history.count("ROLLED_BACK")), (1, 1));
        run.calls().expect("invoke root-handler/0");
        Ok(())
    }
}
