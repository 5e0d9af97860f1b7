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

    handler! {
        TouchyHandler: "touchy-handler" on Touchy;
        step "nothing" nothing => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_in_deserialize_does_not_lose_the_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((TouchyHandler,)).await?;
        let Err(refused) = scoop.launch(Touchy).await else { panic!("it was launched") };
        assert!(refused.is_invalid(), "{refused:?}");
        assert_eq!(refused.to_string(), "a message for topic `touchy` cannot be written as JSON");
        let cause = std::error::Error::source(&refused).expect("it has a cause").to_string();
        assert!(cause.contains("Touchy` does not read back what it writes: it panics"), "{cause}");
        let launched = scoop.launch_untyped("touchy", serde_json::Value::Null).await?;
        let Outcome::RolledBack(failure) = launched.ends().await? else {
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

    handler! {
        Speechless: "speechless" on Root;
        step "fail" fail => fails(Unspeakable);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_panic_in_the_display_of_an_error_does_not_lose_the_run() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Speechless,)).await?;
        let Outcome::RolledBack(failure) = scoop.launch(Root).await?.ends().await? else {
            panic!("it did not fail");
        };
        assert!(failure.message.contains("words fail me"), "{failure}");
        Ok(())
    }
}

/// Panics in user code that the engine calls, or drops, beside the functions of the saga. Each fails the step.
mod beside_the_step {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::support::Gate;

    #[derive(Clone, Copy, Debug, PartialEq, Message, Serialize, Deserialize)]
    #[message(topic = "nasty")]
    enum Where {
        When,
        Display,
        FailingDisplay,
        Source,
        DropOfAnErrorThatIsRetried,
        DropOfAnErrorOfInfrastructure,
        DropOfAPayload,
        DropOfADroppedPayload,
        DropOfAGuardAtATimeout,
        Cleanup,
    }

    #[derive(Debug)]
    struct Nasty(Where);

    impl fmt::Display for Nasty {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                Where::Display => panic!("nasty"),
                Where::FailingDisplay => Err(fmt::Error),
                _ => f.write_str("an error"),
            }
        }
    }

    impl std::error::Error for Nasty {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            assert!(self.0 != Where::Source, "nasty");
            None
        }
    }

    impl Drop for Nasty {
        fn drop(&mut self) {
            use Where::{DropOfAnErrorOfInfrastructure, DropOfAnErrorThatIsRetried};
            assert!(![DropOfAnErrorThatIsRetried, DropOfAnErrorOfInfrastructure].contains(&self.0), "nasty");
        }
    }

    /// Panics when it is dropped, and so many times with another guard as its payload.
    struct Guard(u32);

    impl Drop for Guard {
        fn drop(&mut self) {
            match self.0.checked_sub(1) {
                Some(left) => std::panic::panic_any(Self(left)),
                None => panic!("nasty"),
            }
        }
    }

    struct Saga {
        calls: Arc<AtomicU32>,
        gate: Gate,
    }

    #[saga(name = "nasty")]
    #[subscribes(Where)]
    impl Saga {
        #[step(retry(max = 1_000, backoff = "1ms..1ms", when = is_worth_it), timeout = "50ms", finally = clean_up)]
        async fn step(&self, _: &mut Scope<'_>, place: &Where) -> Result<()> {
            self.calls.fetch_add(1, Ordering::Relaxed);
            match place {
                Where::DropOfAPayload => std::panic::panic_any(Guard(0)),
                Where::DropOfADroppedPayload => std::panic::panic_any(Guard(3)),
                Where::DropOfAGuardAtATimeout => {
                    let _guard = Guard(0);
                    self.gate.pass().await;
                    Ok(())
                }
                Where::DropOfAnErrorOfInfrastructure => Err(Error::from(Nasty(*place)).into_infrastructure()),
                Where::Cleanup => Err(Error::msg("an error").into_permanent()),
                _ => Err(Nasty(*place).into()),
            }
        }

        fn is_worth_it(error: &Error) -> bool {
            let nasty = error.downcast_ref::<Nasty>();
            assert!(nasty.is_none_or(|nasty| nasty.0 != Where::When), "nasty");
            nasty.is_some()
        }

        async fn clean_up(&self, _: &mut Scope<'_>, place: &Where) -> Result<()> {
            if *place == Where::Cleanup { Err(Nasty(Where::Display).into()) } else { Ok(()) }
        }
    }

    /// The failure of the step, after so many calls of it.
    async fn failure(place: Where) -> Result<(Failure, u32)> {
        let (db, calls) = (Database::new().await, Arc::new(AtomicU32::new(0)));
        let saga = Saga { calls: calls.clone(), gate: Gate::default() };
        let scoop = db.scoop().only::<Saga>().provide(saga).start().await?;
        let Outcome::RolledBack(failure) = scoop.launch(place).await?.ends().await? else {
            panic!("it did not fail");
        };
        Ok((failure, calls.load(Ordering::Relaxed)))
    }

    async fn fails_at_once_with_a_panic(place: Where, code: &str, cause: Option<&str>) -> Result<()> {
        let (failure, calls) = failure(place).await?;
        let message = format!("panic in {code} of step `step`: nasty");
        assert_eq!((&*failure.kind, &*failure.message, calls), ("Panic", &*message, 1));
        let causes: Vec<_> = failure.causes.iter().map(|cause| &*cause.message).collect();
        assert_eq!(causes, cause.into_iter().collect::<Vec<_>>());
        assert!(failure.stack_trace[0].file_name.ends_with("panics.rs"), "{failure:?}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_the_condition_of_a_retry_fails_the_step() -> Result<()> {
        fails_at_once_with_a_panic(Where::When, "`retry(when = ..)`", Some("an error")).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_display_of_an_error_to_be_retried_fails_the_step() -> Result<()> {
        fails_at_once_with_a_panic(Where::Display, "`Display` or `source` of the error", None).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn error_of_display_fails_the_step() -> Result<()> {
        let (failure, calls) = failure(Where::FailingDisplay).await?;
        assert_eq!((&*failure.kind, calls), ("Panic", 1));
        assert!(failure.message.contains("implementation returned an error"), "{failure}");
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_source_of_an_error_fails_the_step() -> Result<()> {
        fails_at_once_with_a_panic(Where::Source, "`Display` or `source` of the error", None).await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_drop_of_an_error_to_be_retried_fails_the_step() -> Result<()> {
        fails_at_once_with_a_panic(Where::DropOfAnErrorThatIsRetried, "`Drop` of the error", Some("an error"))
            .await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_drop_of_an_error_of_infrastructure_fails_the_step() -> Result<()> {
        fails_at_once_with_a_panic(
            Where::DropOfAnErrorOfInfrastructure,
            "`Drop` of the error",
            Some("an error"),
        )
        .await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_drop_of_a_payload_fails_the_step() -> Result<()> {
        for place in [Where::DropOfAPayload, Where::DropOfADroppedPayload] {
            let (failure, calls) = failure(place).await?;
            assert_eq!((&*failure.kind, calls), ("Panic", 1));
            assert_eq!(failure.message, "panicked with a value that is not a text");
        }
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_drop_of_a_guard_at_a_timeout_is_a_cause_of_the_timeout() -> Result<()> {
        let (failure, calls) = failure(Where::DropOfAGuardAtATimeout).await?;
        assert_eq!((&*failure.kind, calls), ("StepTimeout", 1));
        let message = "panic in the drop of step `step` at its timeout: nasty";
        assert_eq!((&*failure.causes[0].kind, &*failure.causes[0].message), ("Panic", message));
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_display_of_the_error_of_a_cleanup_is_a_cause_of_the_failure() -> Result<()> {
        let (failure, calls) = failure(Where::Cleanup).await?;
        assert_eq!((&*failure.message, calls), ("an error", 1));
        let message = "panic in `Display` or `source` of the error of cleaning up after step `step`: nasty";
        assert_eq!((&*failure.causes[0].kind, &*failure.causes[0].message), ("Panic", message));
        Ok(())
    }
}

/// A message that panics when dropped. Once the run no longer needs it, no step is left that could fail.
mod in_drop_of_a_message {
    use super::*;

    #[derive(Message, Serialize)]
    #[message(topic = "clinging")]
    struct Clinging {
        panics: bool,
    }

    impl<'de> Deserialize<'de> for Clinging {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer)?;
            Ok(Self { panics: true })
        }
    }

    impl Drop for Clinging {
        fn drop(&mut self) {
            assert!(!self.panics, "it clings");
        }
    }

    handler! {
        Clung: "clung" on Clinging;
        step "one" one => done();
        step "two" two => done();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn panic_in_drop_of_a_message_changes_nothing() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Clung,)).await?;
        assert_eq!(scoop.launch(Clinging { panics: false }).await?.ends().await?, Outcome::Committed);
        scoop.shutdown().await?;
        Ok(())
    }
}
