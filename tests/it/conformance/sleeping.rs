//! Sleeping and scheduling (scenarios SL).

use std::time::Duration;

use super::*;
use crate::support::{Database, calls_of, invoked};

mod sl_01 {
    use super::*;

    const NAP: Duration = Duration::from_millis(150);

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.sleep(NAP).await
        }

        step "2" two => done();
    }

    /// A sleep is a state of the run, and no message, unlike in the reference.
    #[tokio::test(flavor = "multi_thread")]
    async fn sl_01_sleep_between_two_steps() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        let history = run.history().await;
        history.expect(
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M0 SUSPENDED root-handler 1 next=2 wait
            M0 SUSPENDED root-handler 2
            M0 COMMITTED root-handler 2",
        );
        let rows = history.rows();
        let slept = rows[4].micros() - rows[2].micros();
        assert!(slept >= i64::try_from(NAP.as_micros())?, "slept for {slept} µs");
        assert_eq!(run.db.number("SELECT count(*) FROM scoop.message").await, 1);
        run.calls().expect(
            "invoke root-handler/0
            invoke root-handler/2",
        );
        Ok(())
    }
}

mod sl_02 {
    use std::time::SystemTime;

    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Appointment {
        at: SystemTime,
    }

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Appointment)]
    impl RootHandler {
        #[step(name = "0", at = appointed)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Appointment) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn appointed(&self, _: &mut Scope<'_>, appointment: &Appointment) -> Result<SystemTime> {
            Ok(appointment.at)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sl_02_a_step_scheduled_for_a_point_in_time() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler,)).await?;
        let now = db.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
        let micros = now + 150_000;
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.try_into()?);
        let root = scoop.launch(Appointment { at }).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        let history = db.history().await;
        history.expect(
            r#"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler "0 (waiting for scheduled time)" next=1 wait
            M0 SUSPENDED root-handler 0
            M0 COMMITTED root-handler 0"#,
        );
        assert!(history.rows()[3].micros() >= micros, "it ran before its time");
        calls_of(&root).expect("invoke root-handler/0");
        Ok(())
    }
}
