//! Panics where none is expected: in the user's code, but outside of any step.

use std::fmt;

use super::*;
use crate::support::Database;

mod in_deserialize {
    use super::*;

    #[derive(Message, Serialize)]
    #[message(topic = "touchy")]
    struct Touchy;

    impl<'de> Deserialize<'de> for Touchy {
        fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("do not touch me")
        }
    }

    #[derive(Default)]
    struct TouchyHandler;

    #[saga]
    #[subscribes(Touchy)]
    impl TouchyHandler {
        #[step]
        async fn nothing(&self, _: &mut Scope<'_>, _: &Touchy) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_in_deserialize_does_not_lose_the_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<TouchyHandler>().start().await?;
        let Outcome::RolledBack(failure) = scoop.launch(Touchy).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert_eq!(failure.kind, "PayloadMismatch");
        assert!(failure.message.contains("do not touch me"), "{failure}");
        Ok(())
    }
}

mod in_display {
    use super::*;

    #[derive(Debug)]
    struct Unspeakable;

    impl fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("words fail me")
        }
    }

    impl std::error::Error for Unspeakable {}

    #[derive(Default)]
    struct Speechless;

    #[saga]
    #[subscribes(Root)]
    impl Speechless {
        #[step]
        async fn fail(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Err(Unspeakable.into())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_in_the_display_of_an_error_does_not_lose_the_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.scoop().only::<Speechless>().start().await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.contains("words fail me"), "{failure}");
        Ok(())
    }
}
